// SPDX-License-Identifier: Apache-2.0

// Package show writes the output of commands as JSON or lines, and recognises terminals.
package show

import (
	"encoding/json"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
)

// JSON writes a value as indented JSON.
func JSON(out io.Writer, value any) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}

// Lines writes lines with a newline behind each.
func Lines(out io.Writer, lines []string) error {
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

// Terminal returns out as a file if it is a terminal.
func Terminal(out any) (*os.File, bool) {
	f, ok := out.(*os.File)
	return f, ok && isatty.IsTerminal(f.Fd())
}
