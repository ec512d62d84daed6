// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/guest"
	"culvert/internal/show/usage"
)

// newGuestCmd is "culvert guest", for the development of culvert.
func newGuestCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "guest",
		Short:  "run culvert's own tests on Debian's kernels",
		Hidden: true,
		Args:   cli.UsageArgs(cobra.NoArgs),
		RunE:   cli.NeedVerb,
	}
	cmd.AddCommand(newGuestTestCmd(), newGuestInitCmd())
	return cmd
}

// newGuestInitCmd is "culvert guest init", the first process of a guest.
func newGuestInitCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "init",
		Short: "run as the first process of a guest",
		Args:  cli.UsageArgs(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return guest.Init(cmd.Context()) },
	}
}

// newGuestTestCmd is "culvert guest test".
func newGuestTestCmd() *cobra.Command {
	var o guest.TestOptions
	cmd := &cobra.Command{
		Use:     "test 'PROGRAM ARGUMENT...'...",
		Short:   "run test programs, as 'go test -c' builds them without cgo, in a guest for each kernel",
		Example: "  culvert guest test --kernel 6.1 'datapath.test -test.v -test.run=MAC'",
		Args:    cli.UsageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Commands, o.Output, o.Progress = args, cmd.OutOrStdout(), cmd.ErrOrStderr()
			err := guest.Test(cmd.Context(), o)
			switch {
			case errors.Is(err, guest.ErrUnknown), errors.Is(err, guest.ErrWire):
				return usage.Error(err)
			case err != nil:
				return fmt.Errorf("guest test: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&o.Arch, "arch", "", "boot machines of the architecture `ARCH`: amd64 or arm64 (default this machine's)")
	cmd.Flags().StringSliceVar(&o.Lines, "kernel", nil, "use the kernels of lines `LINE,...` (default 6.1,6.12)")
	cmd.Flags().StringSliceVar(&o.Programs, "program", nil, "add the programs `PROGRAM,...` of this machine, which the tests call, with their libraries")
	cmd.Flags().StringArrayVar(&o.Wires, "wire", nil, "add a pair of joined cards, the near one a `MODEL[*QUEUES]`: virtio_net, vmxnet3, e1000e")
	cli.CompleteFlag(cmd, "arch", func([]string) []string { return []string{string(guest.AMD64), string(guest.ARM64)} })
	cli.CompleteFlag(cmd, "kernel", func([]string) []string { return guest.Lines })
	return cmd
}
