// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"culvert/internal/show/usage"
)

// printsJSON is the annotation of commands that can print JSON.
const printsJSON = "culvert_prints_json"

// JSONFlags adds -j and -p for all commands. Commands that print no JSON refuse them.
func JSONFlags(root *cobra.Command) {
	root.PersistentFlags().BoolP("json", "j", false, "print JSON, in one line")
	root.PersistentFlags().BoolP("pretty", "p", false, "print JSON, indented")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.HasSubCommands() || !wantsJSON(cmd) || HasJSON(cmd) {
			return nil
		}
		return usage.Error(fmt.Errorf("%s prints no JSON: leave -j and -p out (see '%[1]s --help')", cmd.CommandPath()))
	}
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		ShowJSONFlags(cmd)
		help(cmd, args)
	})
}

// CanPrintJSON marks a command as one that prints JSON. If -j or -p is given, it sets asked before the command runs, and
// formats the output of the command by the flag.
func CanPrintJSON(cmd *cobra.Command, asked *bool) {
	cmd.Annotations = map[string]string{printsJSON: ""}
	cmd.PreRun = func(cmd *cobra.Command, _ []string) {
		if *asked = wantsJSON(cmd); *asked {
			cmd.SetOut(&jsonWriter{out: cmd.OutOrStdout(), pretty: isPretty(cmd)})
		}
	}
}

// HasJSON tells whether a command is marked as one that prints JSON.
func HasJSON(cmd *cobra.Command) bool {
	_, marked := cmd.Annotations[printsJSON]
	return marked
}

func isPretty(cmd *cobra.Command) bool {
	pretty, err := cmd.Flags().GetBool("pretty")
	return err == nil && pretty
}

func wantsJSON(cmd *cobra.Command) bool {
	asked, err := cmd.Flags().GetBool("json")
	return err == nil && asked || isPretty(cmd)
}

// ShowJSONFlags hides -j and -p in the help of commands that refuse them.
func ShowJSONFlags(cmd *cobra.Command) {
	cmd.Root().PersistentFlags().VisitAll(func(f *pflag.Flag) { f.Hidden = !cmd.HasAvailableSubCommands() && !HasJSON(cmd) })
}

// jsonWriter formats JSON texts: each in one line, or indented by two spaces for each level. It formats while it writes,
// because a list of flows or packets may be long.
type jsonWriter struct {
	out     io.Writer
	pretty  bool
	depth   int
	empty   bool // the innermost object or array has no content so far
	quoted  bool // inside a string
	escaped bool // behind a backslash in a string
}

func (w *jsonWriter) Write(text []byte) (int, error) {
	var b bytes.Buffer
	for _, c := range text {
		w.add(&b, c)
	}
	if _, err := w.out.Write(b.Bytes()); err != nil {
		return 0, err
	}
	return len(text), nil
}

func (w *jsonWriter) add(b *bytes.Buffer, c byte) {
	if w.quoted {
		b.WriteByte(c)
		w.quoted = w.escaped || c != '"'
		w.escaped = !w.escaped && c == '\\'
		return
	}
	switch c {
	case ' ', '\t', '\r', '\n':
		return
	case '}', ']':
		w.depth--
		if !w.empty {
			w.newline(b)
		}
		w.empty = false
		b.WriteByte(c)
		if w.depth == 0 {
			b.WriteByte('\n')
		}
		return
	}
	if w.empty {
		w.newline(b)
		w.empty = false
	}
	b.WriteByte(c)
	switch c {
	case '{', '[':
		w.depth++
		w.empty = true
	case ',':
		w.newline(b)
	case ':':
		if w.pretty {
			b.WriteByte(' ')
		}
	case '"':
		w.quoted = true
	}
}

func (w *jsonWriter) newline(b *bytes.Buffer) {
	if !w.pretty {
		return
	}
	b.WriteByte('\n')
	for range w.depth {
		b.WriteString("  ")
	}
}
