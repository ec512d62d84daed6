// SPDX-License-Identifier: Apache-2.0

// Package dump writes what a data plane has as configuration: TOML that 'culvert check' accepts. The commands 'culvert filter dump'
// and 'culvert lb dump' are made of it.
package dump

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"culvert/internal/config"
	"culvert/internal/datapath"
)

// Options are the options of all commands that dump.
type Options struct {
	// On is the name of the data plane, "" for the only one that the command can dump.
	On string
	// ByHand leaves out what is from the configuration file.
	ByHand bool
	// Tables leaves out the keys of the data plane. ByHand does so too.
	Tables bool
	// Others returns the names of the other tables that the configuration of a data plane needs to be as it is.
	Others func(inst *datapath.Instance) ([]string, error)
	// Out gets the dump, Warn a line for everything that it cannot express.
	Out, Warn io.Writer
}

// Head is what a dump begins with.
type Head struct {
	// What names what is dumped: "the filter".
	What string
	// Comments are lines about the dump.
	Comments []string
	// Notes say what configuration cannot express. They are comments and warnings.
	Notes []string
}

// Writer writes a dump. The first error is returned by Close, and nothing is written after it.
type Writer struct {
	out *bufio.Writer
	err error
}

// planeKeys are the keys of a file that a data plane knows.
type planeKeys struct {
	Name       string   `toml:"name"`
	Mode       string   `toml:"mode,omitempty"`
	Interfaces []string `toml:"interfaces"`
}

// Begin writes the beginning of a dump of a data plane: comments, warnings and, unless options say otherwise, the keys of the data
// plane.
func Begin(inst *datapath.Instance, o Options, h Head) (*Writer, error) {
	w := &Writer{out: bufio.NewWriter(o.Out)}
	keys := !o.ByHand && !o.Tables
	var others []string
	if keys && o.Others != nil {
		var err error
		if others, err = o.Others(inst); err != nil {
			return nil, err
		}
	}
	if o.ByHand {
		w.Comment("What was made by hand in %s of data plane %s, for a drop-in of its file.", h.What, inst.Name())
	} else {
		w.Comment("%s of data plane %s.", upper(h.What), inst.Name())
	}
	for _, c := range h.Comments {
		w.Comment("%s", c)
	}
	notes := h.Notes
	if len(others) > 0 {
		notes = append(notes, fmt.Sprintf("left out: %s of data plane %s, which a start from this file alone turns off", strings.Join(others, ", "), inst.Name()))
	}
	if keys {
		w.Comment("metrics, missing, detached and [workers] are not known to a data plane: the defaults apply.")
	}
	for _, note := range notes {
		w.Comment("warning: %s", note)
		fmt.Fprintln(o.Warn, "warning:", note)
	}
	if keys {
		p := planeKeys{Name: inst.Name(), Interfaces: append([]string{}, inst.Configured()...)}
		if inst.Generic() {
			p.Mode = config.ModeGeneric
		}
		w.line("")
		w.encode(p)
	}
	return w, nil
}

// upper returns a text with its first letter, which is in ASCII, in upper case.
func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// Comment writes a line that begins with #.
func (w *Writer) Comment(format string, args ...any) {
	w.line("# " + strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
}

// Table writes a table: its header, as "[[filter.rule]]", and the keys of a struct, which has no tables inside. Comments are written
// above it. Keys is nil for a table without any.
func (w *Writer) Table(header string, keys any, comments ...string) {
	w.line("")
	for _, c := range comments {
		w.Comment("%s", c)
	}
	w.line(header)
	if keys != nil {
		w.encode(keys)
	}
}

// Commented writes a table as comments, because of what the comments above it say.
func (w *Writer) Commented(header string, keys any, comments ...string) {
	text, err := toml.Marshal(keys)
	w.keep(err)
	w.line("")
	for _, c := range comments {
		w.Comment("%s", c)
	}
	w.Comment("%s", header)
	for line := range strings.Lines(string(text)) {
		w.Comment("%s", strings.TrimRight(line, "\n"))
	}
}

// List writes a key of the last table, with a list of texts that need no escapes, one on each line: it may have a million.
func (w *Writer) List(key string, texts iter.Seq[string]) {
	w.line(key + " = [")
	for text := range texts {
		w.write("  '" + text + "',\n")
	}
	w.line("]")
}

// Close ends the dump.
func (w *Writer) Close() error {
	w.keep(w.out.Flush())
	if w.err != nil {
		return fmt.Errorf("writing the dump: %w", w.err)
	}
	return nil
}

func (w *Writer) encode(keys any) {
	var b bytes.Buffer
	w.keep(toml.NewEncoder(&b).Encode(keys))
	w.write(b.String())
}

func (w *Writer) line(text string) { w.write(text + "\n") }

func (w *Writer) write(text string) {
	if w.err == nil {
		_, err := w.out.WriteString(text)
		w.keep(err)
	}
}

func (w *Writer) keep(err error) {
	if w.err == nil {
		w.err = err
	}
}

// Duration formats a duration as a file has it: 1m30s, 15m, 500ms.
func Duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
