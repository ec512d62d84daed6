// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"culvert/internal/bench"
	"culvert/internal/lab"
	"culvert/internal/node"
	"culvert/internal/scion/scionpkt"
)

// words returns what may stand at a position of the command line. args are the arguments before it.
type words func(args []string) []string

// completeArgs completes the first arguments by a function each, and all others by rest. Where the function is nil, the shell
// completes files.
func completeArgs(rest words, first ...words) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		at := rest
		if len(args) < len(first) {
			at = first[len(args)]
		}
		if at == nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return at(args), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag completes the value of a flag. If the value is a list with commas, it completes the last element.
func completeFlag(cmd *cobra.Command, flag string, values words) {
	complete := func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		before := ""
		if cmd.Flag(flag).Value.Type() == "stringSlice" {
			before = typed[:strings.LastIndex(typed, ",")+1]
		}
		all := unused(values(args), strings.Split(before, ","))
		for i := range all {
			all[i] = before + all[i]
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
	must(cmd.RegisterFlagCompletionFunc(flag, complete))
}

// completeFileFlag completes the value of a flag with files of a kind.
func completeFileFlag(cmd *cobra.Command, flag, extension string) {
	must(cmd.MarkFlagFilename(flag, extension))
}

// completeNoFiles keeps the shell from completing files for arguments and flags without a completion of their own.
func completeNoFiles(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, known := cmd.GetFlagCompletionFunc(f.Name); !known && len(f.Annotations) == 0 {
			must(cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions))
		}
	})
	for _, sub := range cmd.Commands() {
		completeNoFiles(sub)
	}
}

// must panics on an error. It is for calls that fail only if the code names a flag that does not exist.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func nothing([]string) []string { return nil }

func fixed(values ...string) words {
	return func([]string) []string { return slices.Clone(values) }
}

func unused(all, used []string) []string {
	return slices.DeleteFunc(all, func(s string) bool { return slices.Contains(used, s) })
}

func hostInterfaces(args []string) []string { return unused(node.HostInterfaces(), args) }

func attachedInterfaces(args []string) []string { return unused(node.AttachedInterfaces(), args) }

func labs(args []string) []string {
	all, err := lab.List()
	if err != nil {
		return nil
	}
	var names []string
	for _, l := range all {
		names = append(names, l.Name)
	}
	return unused(names, args)
}

func labNamespaces(args []string) []string {
	l, err := lab.Open(args[0])
	if err != nil {
		return nil
	}
	var names []string
	for _, n := range l.Namespaces {
		names = append(names, n.Name)
	}
	return names
}

// benchRows returns the rows of the scenario that args name, or of all scenarios.
func benchRows(args []string) []string {
	scenarios := args
	if len(scenarios) == 0 {
		scenarios = bench.Scenarios()
	}
	var names []string
	for _, s := range scenarios {
		names = append(names, bench.RowNames(s)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func directions([]string) []string {
	var names []string
	for d := range scionpkt.NumDirections {
		names = append(names, d.String())
	}
	return names
}
