// SPDX-License-Identifier: Apache-2.0

// Command culvert forwards, filters and balances packets in XDP.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/benchcmd"
	"culvert/cmd/culvert/internal/cli"
	"culvert/cmd/culvert/internal/clustercmd"
	"culvert/cmd/culvert/internal/filtercmd"
	"culvert/cmd/culvert/internal/fleetcmd"
	"culvert/cmd/culvert/internal/lbcmd"
	"culvert/cmd/culvert/internal/routecmd"
	"culvert/internal/lab"
	"culvert/internal/show/usage"
	"culvert/internal/version"
)

func main() {
	os.Exit(run())
}

func run() int {
	// A package of the reference router ignores SIGHUP for the whole process, which only routers need.
	signal.Reset(syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	root := newRootCmd()
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "culvert:", err)
	}
	return exitStatus(err)
}

// exitStatus returns 2 for wrong usage, 127 if a command to run does not exist, as shells do, and 1 for all other errors.
func exitStatus(err error) int {
	switch {
	case err == nil:
		return 0
	case usage.Is(err):
		return 2
	case errors.Is(err, lab.ErrNoCommand):
		return 127
	default:
		return 1
	}
}

func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:   "culvert",
		Short: "forward, filter and balance packets in XDP",
		Long: `Forward, filter and balance packets in XDP, in the driver, before the Linux
network stack sees them. culvert is a SCION border router, an IP router, a packet
filter and a layer-4 load balancer, each alone or together with others.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cli.UsageArgs(cobra.NoArgs),
		Version:       version.Long(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage.Error(fmt.Errorf("%w (see '%s --help')", cli.PlainValue(err), cmd.CommandPath()))
	})
	root.Flags().Bool("version", false, "print the version") // cobra would use -v for it otherwise
	cli.JSONFlags(root)
	for _, verb := range verbs {
		root.AddCommand(verb())
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	helpAlone(root)
	strictDefaults(root)
	cli.CompleteNoFiles(root)
	return root
}

// helpAlone makes commands that only contain others print their help if no argument follows. cobra's default prints the help
// for an unknown verb too, and exits with status 0.
func helpAlone(cmd *cobra.Command) {
	if !cmd.Runnable() {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, sub := range cmd.Commands() {
		helpAlone(sub)
	}
}

// strictDefaults makes the commands of cobra itself refuse unknown arguments as wrong usage.
func strictDefaults(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.RunE = helpOn
		case "completion":
			cmd.Args = cli.UsageArgs(cobra.NoArgs)
			for _, shell := range cmd.Commands() {
				shell.Args = cli.UsageArgs(cobra.NoArgs)
			}
		}
	}
}

// helpOn prints the help of the command that the arguments name.
func helpOn(cmd *cobra.Command, args []string) error {
	topic, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return usage.Error(fmt.Errorf("no command 'culvert %s': see 'culvert help'", strings.Join(args, " ")))
	}
	topic.InitDefaultHelpFlag()
	topic.InitDefaultVersionFlag()
	return topic.Help()
}

// verbs lists the constructors of the top-level commands, each in a file of its own.
var verbs = []func() *cobra.Command{
	newRunCmd,
	newCheckCmd,
	newReloadCmd,
	newAttachCmd,
	newDetachCmd,
	newStatusCmd,
	newWatchCmd, newCaptureCmd,
	routecmd.New,
	filtercmd.New,
	lbcmd.New,
	clustercmd.New,
	fleetcmd.New,
	newKeyCmd,
	newScionCmd,
	newDoctorCmd,
	newSupportCmd,
	newGenCmd,
	newLabCmd,
	benchcmd.New,
	newGuestCmd,
	newManCmd,
	newVersionCmd,
}
