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

// Runner runs the changes of a verb.
type Runner interface {
	// Run carries a change out and prints what it has done.
	Run(cmd *cobra.Command, q edit.Request) error
}

// Changing adds the flags of a verb that changes data planes, and returns what runs its changes. names completes names of data planes.
// It is ChangeFlags for those of this host.
type Changing func(cmd *cobra.Command, names func() []string) Runner

// changer runs changes on a data plane of this host.
type changer struct {
	on     string
	asJSON bool
}

// ChangeFlags adds the flags of a verb that changes a data plane: --on, completed by names, and -j.
func ChangeFlags(cmd *cobra.Command, names func() []string) Runner {
	c := new(changer)
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

// Run implements Runner.
func (c *changer) Run(cmd *cobra.Command, q edit.Request) error {
	o := node.ChangeOutput{JSON: c.asJSON, Out: cmd.OutOrStdout()}
	if _, ok := show.Terminal(os.Stderr); ok {
		o.Progress = cmd.ErrOrStderr()
	}
	return node.Change(cmd.Context(), c.on, q, o)
}
