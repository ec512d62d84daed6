// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"culvert/internal/lab"
	"culvert/internal/node"
)

// Words returns what may stand at a position of the command line. args are the arguments before it.
type Words func(args []string) []string

// CompleteArgs completes the first arguments by a function each, and all others by rest. Where the function is nil, the shell
// completes files.
func CompleteArgs(rest Words, first ...Words) cobra.CompletionFunc {
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

// CompleteFlag completes the value of a flag. If the value is a list with commas, it completes the last element.
func CompleteFlag(cmd *cobra.Command, flag string, values Words) {
	complete := func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		before := ""
		if cmd.Flag(flag).Value.Type() == "stringSlice" {
			before = typed[:strings.LastIndex(typed, ",")+1]
		}
		all := Unused(values(args), strings.Split(before, ","))
		for i := range all {
			all[i] = before + all[i]
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
	Must(cmd.RegisterFlagCompletionFunc(flag, complete))
}

// CompleteFileFlag completes the value of a flag with files of a kind.
func CompleteFileFlag(cmd *cobra.Command, flag, extension string) {
	Must(cmd.MarkFlagFilename(flag, extension))
}

// CompleteNoFiles keeps the shell from completing files for arguments and flags without a completion of their own.
func CompleteNoFiles(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, known := cmd.GetFlagCompletionFunc(f.Name); !known && len(f.Annotations) == 0 {
			Must(cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions))
		}
	})
	for _, sub := range cmd.Commands() {
		CompleteNoFiles(sub)
	}
}

// Must panics on an error. It is for calls that fail only if the code names a flag that does not exist.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}

// Nothing completes nothing, and keeps the shell from completing files.
func Nothing([]string) []string { return nil }

// Fixed completes words that are always the same.
func Fixed(values ...string) Words {
	return func([]string) []string { return slices.Clone(values) }
}

// Unused returns the words of all that are not in used. It changes all.
func Unused(all, used []string) []string {
	return slices.DeleteFunc(all, func(s string) bool { return slices.Contains(used, s) })
}

// HostInterfaces completes the interfaces of this network namespace.
func HostInterfaces(args []string) []string { return Unused(node.HostInterfaces(), args) }

// AttachedInterfaces completes the interfaces of this network namespace to which a data plane is attached.
func AttachedInterfaces(args []string) []string { return Unused(node.AttachedInterfaces(), args) }

// Labs completes the names of the labs that are up.
func Labs(args []string) []string {
	all, err := lab.List()
	if err != nil {
		return nil
	}
	var names []string
	for _, l := range all {
		names = append(names, l.Name)
	}
	return Unused(names, args)
}
