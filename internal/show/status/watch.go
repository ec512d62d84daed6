// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"culvert/internal/show"
	"culvert/internal/show/screen"
)

// WatchOptions say what to watch, and how.
type WatchOptions struct {
	// Router and Interface narrow the view to one router ID and one interface; "" is all. The
	// router has to be there at the beginning, the interface need not. Of several routers of that ID, the one in
	// this network namespace is meant, if there is one.
	Router, Interface string
	// Interval is how often to look.
	Interval time.Duration
	// Verbose explains each reason.
	Verbose bool
	// Count ends the watching after so many intervals and asks for lines; 0 is endless.
	Count int
	// Out gets a full-screen table if it is a terminal, lines otherwise.
	Out io.Writer
	// Err is told when there is nothing to write lines of yet.
	Err io.Writer
}

// Watch shows what happens on the interfaces until ctx ends or the user leaves.
func Watch(ctx context.Context, o WatchOptions) error {
	if err := screen.Check(o.Interval, o.Count); err != nil {
		return err
	}
	// What is wrong from the beginning is told at once, not in a table.
	first, err := o.look()
	if err != nil {
		return err
	}
	if o.Router != "" && len(first.routers) == 0 {
		return noRouter(o.Router)
	}
	if f, ok := show.Terminal(o.Out); ok && o.Count == 0 {
		return screen.Run(ctx, f, o.Interval, newLive(o, first).view())
	}
	if !slices.ContainsFunc(first.routers, func(r Router) bool { return len(r.Interfaces) > 0 }) {
		fmt.Fprintln(o.Err, o.waitingFor())
	}
	return watchLines(ctx, o, first, o.look)
}

// noRouter says which ones there are.
func noRouter(name string) error {
	report, err := Collect("")
	if err != nil {
		return err
	}
	var names []string
	for _, r := range report.Routers {
		if !slices.Contains(names, r.ID) {
			names = append(names, r.ID)
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("no router %s on this machine, nor any other: attach with 'culvert run' first", name)
	}
	return fmt.Errorf("no router %s on this machine: use one of %s", name, strings.Join(names, ", "))
}

// look reads the data planes that are asked for.
func (o WatchOptions) look() (sample, error) {
	report, err := Collect(o.Router)
	return sample{at: time.Now(), routers: o.narrow(report.Routers)}, err
}

func (o WatchOptions) narrow(routers []Router) []Router {
	var kept []Router
	id, here := func(r Router) string { return r.ID }, func(r Router) bool { return r.Here }
	for _, r := range meant(routers, o.Router, id, here) {
		if o.Interface != "" {
			r.Interfaces = slices.DeleteFunc(slices.Clone(r.Interfaces), func(i Interface) bool {
				return i.Interface != o.Interface
			})
		}
		kept = append(kept, r)
	}
	return kept
}

// waitingFor says what is missing when there is nothing to show.
func (o WatchOptions) waitingFor() string {
	switch {
	case o.Interface != "" && o.Router != "":
		return fmt.Sprintf("router %s is not attached to %s yet, waiting", o.Router, o.Interface)
	case o.Interface != "":
		return fmt.Sprintf("culvert is not attached to an interface %s yet, waiting", o.Interface)
	case o.Router != "":
		return fmt.Sprintf("no router %s now, waiting", o.Router)
	default:
		return "culvert is not attached anywhere on this machine yet, waiting"
	}
}
