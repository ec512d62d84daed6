// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// defaultConfig is the configuration of commands that need one and are given none.
const defaultConfig = "/etc/culvert/culvert.toml"

// configFlag names a configuration; without a default it stands for nothing.
func configFlag(cmd *cobra.Command, file *string, without, usage string) {
	cmd.Flags().StringVarP(file, "config", "c", without, usage)
	completeFileFlag(cmd, "config", "toml")
}

// haveConfig refuses to go on when no configuration is named and the default one is not there.
func haveConfig(cmd *cobra.Command, file string) error {
	if cmd.Flags().Changed("config") || isFile(file) {
		return nil
	}
	return usageError(fmt.Errorf("no configuration: there is no %s, and none is given with -c FILE", file))
}

func isFile(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// fileByFlag is for commands without arguments whose configuration is easily taken for one.
func fileByFlag(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError(fmt.Errorf("give the file with -c: %s -c %s", cmd.CommandPath(), args[0]))
	}
	return nil
}

// onFlag names the data plane for commands that mean one; names completes it.
func onFlag(cmd *cobra.Command, on *string, names func() []string) {
	dataPlaneFlag(cmd, on, names, "the data plane `NAME` (default: the only one that this can be about)")
}

// onlyFlag is onFlag for commands that show all data planes unless one is named.
func onlyFlag(cmd *cobra.Command, on *string, names func() []string) {
	dataPlaneFlag(cmd, on, names, "show only the data plane `NAME` (default: all)")
}

func dataPlaneFlag(cmd *cobra.Command, on *string, names func() []string, usage string) {
	cmd.Flags().StringVar(on, "on", "", usage)
	completeFlag(cmd, "on", func([]string) []string { return names() })
}

// incomingFlag names the interface that a packet to ask about comes in by.
func incomingFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVarP(name, "interface", "i", "", "the packets come in by the interface `IFACE`")
	completeFlag(cmd, "interface", hostInterfaces)
}

// verboseFlag asks for the sentence that explains each reason.
func verboseFlag(cmd *cobra.Command, verbose *bool) {
	cmd.Flags().BoolVarP(verbose, "verbose", "v", false, "explain each reason in a sentence")
}

// watchFlags say how often a live view looks, and when it ends.
func watchFlags(cmd *cobra.Command, seconds *float64, count *int) {
	cmd.Flags().Float64Var(seconds, "interval", 1, "look every `SECONDS`, at least 0.1")
	cmd.Flags().IntVarP(count, "count", "n", 0, "print lines, and stop after `N` intervals")
}
