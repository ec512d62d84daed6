// SPDX-License-Identifier: Apache-2.0

package benchcmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/bench/load"
	"culvert/internal/bench/scenario/insn"
	"culvert/internal/guest"
	"culvert/internal/show/usage"
)

// newInsnCmd is "culvert bench insn".
func newInsnCmd() *cobra.Command {
	var o guest.InsnOptions
	cmd := &cobra.Command{
		Use:   "insn",
		Short: "count the instructions that a packet takes, on Debian's kernels",
		Long: `Boot Debian's kernels in QEMU, whose clock counts instructions, and count how
many a packet takes. The result is the same on every run, whatever else this
machine does. Kernels are downloaded and kept. Needs the Debian packages
qemu-system-x86 and xz-utils, and no root. The rows are:

  cost/NAME  a program by itself, as in 'culvert bench run cost'
  path/NAME  from a generator through a device to a sink, with all that the
             kernel does between them

With --baseline, over 2 % and over one more instruction than in that file are a
failure. The kernels are those of the file, as long as Debian has them.`,
		Example: "  culvert bench insn --kernel 6.12 --rows cost/culvert-cold\n" +
			"  culvert bench insn --kernel 6.12 --rows 'cost/lb-*' --baseline insn.json\n  culvert bench insn --write-baseline insn.json\n  culvert bench insn --baseline insn.json",
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Baseline != "" && o.WriteTo != "" {
				return usage.Error(errors.New("--baseline and --write-baseline: give one of them"))
			}
			o.Progress = cmd.ErrOrStderr()
			err := guest.Instructions(cmd.Context(), o, cmd.OutOrStdout())
			switch {
			case errors.Is(err, load.ErrUnknown), errors.Is(err, guest.ErrUnknown):
				return usage.Error(err)
			case err != nil:
				return fmt.Errorf("bench insn: %w", err)
			}
			return nil
		},
	}
	cli.CanPrintJSON(cmd, &o.JSON)
	cmd.Flags().StringVar(&o.Arch, "arch", "", "boot machines of the architecture `ARCH`: amd64 or arm64 (default this machine's)")
	cmd.Flags().StringSliceVar(&o.Lines, "kernel", nil, "use the kernels of lines `LINE,...` (default 6.1,6.12)")
	cmd.Flags().StringSliceVar(&o.Rows, "rows", nil, "count only the rows `ROW,...`, where * stands for any text (default all)")
	cmd.Flags().StringVar(&o.Baseline, "baseline", "", "compare with `FILE`")
	cmd.Flags().StringVar(&o.WriteTo, "write-baseline", "", "write the baseline `FILE`, from the newest kernels")
	cli.CompleteFlag(cmd, "arch", func([]string) []string { return []string{string(guest.AMD64), string(guest.ARM64)} })
	cli.CompleteFlag(cmd, "kernel", func([]string) []string { return guest.Lines })
	cli.CompleteFlag(cmd, "rows", func([]string) []string { return insn.Rows() })
	cli.CompleteFileFlag(cmd, "baseline", "json")
	cli.CompleteFileFlag(cmd, "write-baseline", "json")
	return cmd
}
