// SPDX-License-Identifier: Apache-2.0

// Package edit has what verbs change by hand on a running data plane: rules and sets of the filter, VIPs and backends, keys. A command
// and the process that serves the data plane carry a request out in the same way.
package edit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterplane"
	"culvert/internal/show/usage"
)

// Request is what a verb is asked to change. Its exported fields are the members of the request in JSON.
type Request interface {
	// Check refuses what is wrong on any data plane. It touches nothing.
	Check() error
	// open opens the data plane on, or the only one if on is "".
	open(on string) (*datapath.Instance, error)
	// do changes the data plane and says in r what it has done. An error leaves everything as it was.
	do(ctx context.Context, inst *datapath.Instance, r *Result) error
}

// Verb is a verb that changes something.
type Verb struct {
	// Words are those of the command line.
	Words string
	// What says in a line what it does.
	What string
	// Kind is what the data plane has to be, "" if it does not matter.
	Kind string
	// New returns an empty request.
	New func() Request
}

// Verbs returns the verbs that change something, sorted.
func Verbs() []Verb {
	const balancer, router = "load balancer", "SCION router"
	return []Verb{
		{"filter add", "add a rule, or replace one", "", func() Request { return new(RuleAdd) }},
		{"filter del", "delete rules, with their counters: all that are named, or none", "", func() Request { return new(RuleDel) }},
		{"filter flush", "delete all rules", "", func() Request { return new(FilterFlush) }},
		{"filter protect", "answer SYNs to a TCP service with cookies, in the driver", "", func() Request { return new(ServiceProtect) }},
		{"filter set add", "add entries to a set, and make the set if there is none", "", func() Request { return new(SetAdd) }},
		{"filter set del", "delete a set, or entries of it: all that are named, or none", "", func() Request { return new(SetDel) }},
		{"filter set replace", "replace all entries of a set", "", func() Request { return new(SetReplace) }},
		{"filter unprotect", "leave SYNs to the service again", "", func() Request { return new(ServiceUnprotect) }},
		{"key add", "load a forwarding key", router, func() Request { return new(KeyAdd) }},
		{"key del", "delete a forwarding key", router, func() Request { return new(KeyDel) }},
		{"lb backend add", "give a VIP another backend", balancer, func() Request { return new(BackendAdd) }},
		{"lb backend del", "delete a backend of a VIP: its flows go to others", balancer, func() Request { return new(BackendDel) }},
		{"lb backend set", "change a backend", balancer, func() Request { return new(BackendSet) }},
		{"lb drain", "keep new flows from a backend, or let a VIP's address be withdrawn", balancer, func() Request { return new(Drain) }},
		{"lb undrain", "undo drain", balancer, func() Request { return new(Undrain) }},
		{"lb vip add", "add a VIP, which has no backends yet", balancer, func() Request { return new(VIPAdd) }},
		{"lb vip del", "delete a VIP with its backends", balancer, func() Request { return new(VIPDel) }},
		{"lb vip set", "change a VIP", balancer, func() Request { return new(VIPSet) }},
	}
}

// WordsOf returns the words of the verb whose request r is.
func WordsOf(r Request) string {
	for _, v := range Verbs() {
		if reflect.TypeOf(v.New()) == reflect.TypeOf(r) {
			return v.Words
		}
	}
	return ""
}

// Result is what a change has done.
type Result struct {
	// Router is the name of the data plane.
	Router string `json:"router"`
	// Done says in a line what was done.
	Done string `json:"done"`
	// Notes are further lines: what else there is to know.
	Notes []string `json:"notes"`
	// Rule is the name of the rule that was added, which may have been made up.
	Rule string `json:"rule,omitempty"`

	text bytes.Buffer
	live io.Writer
}

// Write implements io.Writer: it adds text whose first line is Done, and whose others are Notes.
func (r *Result) Write(b []byte) (int, error) {
	if r.live != nil {
		if _, err := r.live.Write(b); err != nil {
			return 0, err
		}
	}
	return r.text.Write(b)
}

// Lines returns Done and Notes.
func (r *Result) Lines() []string { return append([]string{r.Done}, r.Notes...) }

// Open opens the data plane on which a request is to be carried out: the one that on names, or if on is "" the only one.
func Open(r Request, on string) (*datapath.Instance, error) {
	inst, err := r.open(on)
	return inst, FilterError(err)
}

// Do carries a request out that was checked. It writes lines also to live, as they come, unless live is nil. An error leaves everything
// as it was.
func Do(ctx context.Context, r Request, inst *datapath.Instance, live io.Writer) (*Result, error) {
	result := &Result{Router: inst.Name(), Notes: []string{}, live: live}
	if err := r.do(ctx, inst, result); err != nil {
		return nil, FilterError(err)
	}
	lines := strings.Split(strings.TrimSuffix(result.text.String(), "\n"), "\n")
	result.Done, result.Notes = lines[0], append(result.Notes, lines[1:]...)
	return result, nil
}

// FilterError marks errors of the command line as wrong usage. An expression that does not compile is another error.
func FilterError(err error) error {
	var (
		part       *filter.PartError
		everything *filter.EverythingError
	)
	switch {
	case errors.As(err, &everything) && everything.Action == filterplane.Pass:
		return usage.Error(errors.New("pass without an expression or a set lets every packet skip the rest of the filter: use --all to confirm it"))
	case errors.As(err, &everything):
		return usage.Error(errors.New("drop without an expression or a set drops every packet: use --all to confirm it"))
	case errors.As(err, &part) && part.Part != filter.PartExpression:
		return usage.Error(err)
	}
	return err
}

// Time is a time as users write it: 500ms, 90s.
type Time time.Duration

// MarshalText implements encoding.TextMarshaler.
func (t Time) MarshalText() ([]byte, error) { return []byte(time.Duration(t).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Time) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is no time: write it with a unit, as 500ms or 90s", text)
	}
	*t = Time(d)
	return nil
}

func (t Time) duration() time.Duration { return time.Duration(t) }
