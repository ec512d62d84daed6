// SPDX-License-Identifier: Apache-2.0

// Command culvert carries packets under the Linux network stack.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"culvert/internal/version"
)

func main() {
	os.Exit(run())
}

// errUsage marks an error as wrong usage, which ends the process with status 2.
var errUsage = errors.New("usage")

func run() int {
	// One of the reference's packages ignores SIGHUP for the whole process. Only routers want that.
	signal.Reset(syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	root := newRootCmd()
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "culvert:", err)
		return 2
	default:
		fmt.Fprintln(os.Stderr, "culvert:", err)
		return 1
	}
}

// usageError wraps an error of the command line itself.
func usageError(err error) error {
	return fmt.Errorf("%w: %w", errUsage, err)
}

// usageArgs makes a cobra argument check report wrong usage.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError(fmt.Errorf("%w (see '%s --help')", err, cmd.CommandPath()))
		}
		return nil
	}
}

// needVerb is for commands that do nothing by themselves.
func needVerb(cmd *cobra.Command, _ []string) error {
	return usageError(fmt.Errorf("%s: say what to do (see '%s --help')", cmd.Name(), cmd.CommandPath()))
}

func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:           "culvert",
		Short:         "carry packets under the Linux network stack",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          usageArgs(cobra.NoArgs),
		Version:       version.Long(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError(fmt.Errorf("%w (see '%s --help')", err, cmd.CommandPath()))
	})
	for _, verb := range verbs {
		root.AddCommand(verb())
	}
	helpAlone(root)
	return root
}

// helpAlone makes commands that only hold others print their help when nothing follows them. Left
// to itself cobra prints it for an unknown verb too, and calls that a success.
func helpAlone(cmd *cobra.Command) {
	if !cmd.Runnable() {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, sub := range cmd.Commands() {
		helpAlone(sub)
	}
}

// verbs lists the constructors of the top-level commands, each in a file of its own.
var verbs = []func() *cobra.Command{
	newRunCmd,
	newAttachCmd,
	newDetachCmd,
	newStatusCmd,
	newWatchCmd,
	newKeyCmd,
	newScionCmd,
	newDoctorCmd,
	newGenCmd,
	newLabCmd,
	newBenchCmd,
	newManCmd,
	newVersionCmd,
}
