// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"culvert/internal/api"
	"culvert/internal/config"
	"culvert/internal/show"
	"culvert/internal/show/text"
	"culvert/internal/stage"
	"culvert/internal/stages"
)

// ShowCheck looks at the configuration at path (Check). It writes notes, and what the file turns on or as JSON all, to out, and errors
// to errs, each in a line. It returns an error if there are errors.
func ShowCheck(path string, asJSON bool, out, errs io.Writer) error {
	c := Check(path)
	if asJSON {
		if err := show.JSON(out, c.json()); err != nil {
			return err
		}
	} else {
		c.write(out, errs)
	}
	switch n := len(c.Errors()); n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%s: 'culvert run' would refuse it: 1 error", path)
	default:
		return fmt.Errorf("%s: 'culvert run' would refuse it: %d errors", path, n)
	}
}

func (c *Checked) write(out, errs io.Writer) {
	for _, err := range c.Errors() {
		fmt.Fprintln(errs, err)
	}
	for _, err := range c.Notes {
		fmt.Fprintln(out, "note:", err)
	}
	for _, err := range c.Unchecked {
		fmt.Fprintln(out, "not checked:", err)
	}
	if len(c.Errors()) == 0 {
		fmt.Fprintln(out, c.summary())
	}
}

// summary says in one line what the file turns on.
func (c *Checked) summary() string {
	var b strings.Builder
	b.WriteString(c.file.Path)
	if n := len(c.file.Node.Files) - 1; n > 0 {
		fmt.Fprintf(&b, " with %d drop-%s", n, map[bool]string{true: "in", false: "ins"}[n == 1])
	}
	b.WriteString(": ok: ")
	if c.name != "" {
		fmt.Fprintf(&b, "%s on %s: ", c.name, orNone(c.on))
	}
	var parts []string
	for _, s := range c.stages() {
		part := s.Stage
		if s.text != "" {
			part += " (" + s.text + ")"
		}
		parts = append(parts, part)
	}
	b.WriteString(strings.Join(parts, ", "))
	return b.String()
}

// orNone lists interfaces. A SCION router whose addresses are all on loopback has none.
func orNone(on []string) string {
	if len(on) == 0 {
		return "no interface"
	}
	return strings.Join(on, ", ")
}

// CheckedStage is a stage that the file turns on.
type CheckedStage struct {
	Stage string `json:"stage"`
	// Counts is how many of each thing it has.
	Counts map[string]int `json:"counts"`

	text string
}

// stages returns the stages that the file turns on, with counts of what they have. Zeros are left out of the text.
func (c *Checked) stages() []CheckedStage {
	all := []CheckedStage{}
	if c.file.Node == nil {
		return all
	}
	for _, s := range stages.All() {
		if !has(c.file.Node, s) {
			continue
		}
		one := CheckedStage{Stage: s.Name(), Counts: make(map[string]int)}
		var words []string
		for _, p := range c.plans {
			counter, ok := p.(stage.Summarizer)
			if !ok || p.Name() != s.Name() {
				continue
			}
			for _, n := range counter.Summary() {
				one.Counts[n.Key] = n.N
				if n.N > 0 {
					words = append(words, count(n))
				}
			}
		}
		one.text = strings.Join(words, ", ")
		all = append(all, one)
	}
	return all
}

// count writes a count, as "2 entries".
func count(n stage.Count) string {
	noun := n.One
	if n.N != 1 {
		noun += "s"
		if stem, ok := strings.CutSuffix(n.One, "y"); ok {
			noun = stem + "ies"
		}
	}
	return text.Grouped(uint64(n.N)) + " " + noun
}

// placed returns the error that e was made of, as far as e tells.
func placed(e api.Place) error {
	err := errors.New(e.Error)
	switch {
	case e.Line > 0:
		return &config.Error{File: e.File, Line: e.Line, Column: e.Column, Err: err}
	case e.File != "":
		return &config.ReadError{Path: e.File, Err: err}
	}
	return err
}

func checkedErrors(all []error) []api.Place {
	list := []api.Place{}
	for _, err := range all {
		one := api.Place{Error: err.Error()}
		var at *config.Error
		var unread *config.ReadError
		switch {
		case errors.As(err, &at):
			one = api.Place{File: at.File, Line: at.Line, Column: at.Column, Error: at.Err.Error()}
		case errors.As(err, &unread):
			one.File = unread.Path
		}
		list = append(list, one)
	}
	return list
}

// CheckAnswer is the output of 'culvert check -j'.
type CheckAnswer struct {
	// OK tells whether there are no errors.
	OK bool `json:"ok"`
	// File is the configuration, and Files has it with its drop-ins.
	File  string   `json:"file"`
	Files []string `json:"files"`
	// Name is that of the data plane.
	Name       string         `json:"name"`
	Mode       string         `json:"mode"`
	Interfaces []string       `json:"interfaces"`
	Stages     []CheckedStage `json:"stages"`
	Errors     []api.Place    `json:"errors"`
	// Notes keep nothing from working.
	Notes []api.Place `json:"notes"`
	// Unchecked says what could not be looked at.
	Unchecked []api.Place `json:"unchecked"`
}

func (c *Checked) json() CheckAnswer {
	j := CheckAnswer{
		OK: len(c.Errors()) == 0, File: c.file.Path, Files: []string{}, Name: c.name, Interfaces: append([]string{}, c.on...),
		Stages: c.stages(), Errors: checkedErrors(c.Errors()), Notes: checkedErrors(c.Notes), Unchecked: checkedErrors(c.Unchecked),
	}
	if n := c.file.Node; n != nil {
		j.Files, j.Mode = n.Files, n.Mode
	}
	return j
}
