// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"culvert/internal/edit"
	"culvert/internal/node"
	"culvert/internal/show"
)

// Changer runs the changes of a verb.
type Changer struct {
	on     string
	asJSON bool
}

// ChangeFlags adds the flags of a verb that changes a data plane: --on, completed by names, and -j.
func ChangeFlags(cmd *cobra.Command, names func() []string) *Changer {
	c := new(Changer)
	if cmd.Long == "" {
		cmd.Long = strings.ToUpper(cmd.Short[:1]) + cmd.Short[1:] + "."
	}
	cmd.Long += `

The process that serves the data plane does it, and without a process the command.
With -j, an object with router, done and notes, and with the rule that was added.`
	OnFlag(cmd, &c.on, names)
	CanPrintJSON(cmd, &c.asJSON)
	return c
}

// Run carries a change out and prints what it has done.
func (c *Changer) Run(cmd *cobra.Command, q edit.Request) error {
	o := node.ChangeOutput{JSON: c.asJSON, Out: cmd.OutOrStdout()}
	if _, ok := show.Terminal(os.Stderr); ok {
		o.Progress = cmd.ErrOrStderr()
	}
	return node.Change(cmd.Context(), c.on, q, o)
}
