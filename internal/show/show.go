// SPDX-License-Identifier: Apache-2.0

// Package show writes what commands show: JSON, lines, and whether there is a terminal to write to.
package show

import (
	"encoding/json"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
)

// JSON writes a value as one JSON text, indented.
func JSON(out io.Writer, value any) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}

// Lines writes lines.
func Lines(out io.Writer, lines []string) error {
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

// Terminal returns the terminal that a writer is, if it is one.
func Terminal(out any) (*os.File, bool) {
	f, ok := out.(*os.File)
	return f, ok && isatty.IsTerminal(f.Fd())
}
