// SPDX-License-Identifier: Apache-2.0

// Package cli has what the commands of several folders share: flags, arguments, JSON, completion.
package cli

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"culvert/internal/show/usage"
)

// argCounts finds how many arguments a check of cobra's accepts.
var argCounts = regexp.MustCompile(`^(?:accepts|requires) (.*) arg\(s\), (?:only )?received \d+$`)

// countText says in plain words what a check of cobra's has against the number of arguments.
func countText(err error, given int) string {
	m := argCounts.FindStringSubmatch(err.Error())
	if m == nil {
		return err.Error()
	}
	noun := "arguments"
	if strings.HasSuffix(m[1], "1") {
		noun = "argument"
	}
	return fmt.Sprintf("takes %s %s, not %d", m[1], noun, given)
}

// UsageArgs marks the errors of a cobra check of arguments as wrong usage.
func UsageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usage.Error(fmt.Errorf("%s%s (see '%s --help')", countText(err, len(args)), didYouMean(cmd, args), cmd.CommandPath()))
		}
		return nil
	}
}

// didYouMean names the commands that resemble an unknown one.
func didYouMean(cmd *cobra.Command, args []string) string {
	cmd.SuggestionsMinimumDistance = 2 // letters that differ
	if !cmd.HasAvailableSubCommands() || len(args) == 0 {
		return ""
	}
	var like []string
	for _, name := range cmd.SuggestionsFor(args[0]) {
		like = append(like, "'"+name+"'")
	}
	if len(like) == 0 {
		return ""
	}
	return ": did you mean " + strings.Join(like, " or ") + "?"
}

// NeedVerb is the RunE of commands that need a verb behind them.
func NeedVerb(cmd *cobra.Command, _ []string) error {
	return usage.Error(fmt.Errorf("%s: name a verb (see '%s --help')", cmd.Name(), cmd.CommandPath()))
}

// Address parses an argument that is an address without a zone.
func Address(s string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(s)
	if err != nil || addr.Zone() != "" {
		return addr, usage.Error(fmt.Errorf("%q is no address: give an IPv4 or IPv6 address without a prefix length", s))
	}
	return addr.Unmap(), nil
}
