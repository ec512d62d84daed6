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

// WatchOptions select what Watch shows.
type WatchOptions struct {
	// Router is the ID of the only router to show, "" for all. It has to run when Watch is called. If several have that ID
	// and one of them is in this network namespace, Watch shows that one only.
	Router string
	// Interface is the name of the only interface to show, "" for all. It need not exist, but with a Count it has to appear.
	Interface string
	// Interval is the time between two samples.
	Interval time.Duration
	// Verbose explains each reason.
	Verbose bool
	// Count is the number of intervals after which Watch ends, 0 for no end. With a count Watch writes lines.
	Count int
	// Out receives a full-screen table if it is a terminal, and lines otherwise.
	Out io.Writer
	// Err receives a message if there is nothing to show yet.
	Err io.Writer
}

// Watch shows the rates of interfaces and reasons until ctx ends or the user quits.
func Watch(ctx context.Context, o WatchOptions) error {
	if err := screen.Check(o.Interval, o.Count); err != nil {
		return err
	}
	// An error of the first sample is returned, and not shown in the table.
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
	if !first.attached() {
		fmt.Fprintln(o.Err, o.waitingFor())
	}
	return watchLines(ctx, o, first, o.look)
}

// noRouter returns the error for a data plane that does not run. It names those that do.
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
		return fmt.Errorf("no data plane %s on this machine, nor any other: attach with 'culvert run' first", name)
	}
	one := "use "
	if len(names) > 1 {
		one += "one of "
	}
	return fmt.Errorf("no data plane %s on this machine: %s%s", name, one, strings.Join(names, ", "))
}

// look takes a sample of the selected routers and interfaces.
func (o WatchOptions) look() (sample, error) {
	report, err := Collect(o.Router)
	return sample{at: time.Now(), routers: o.narrow(report.Routers)}, err
}

func (o WatchOptions) narrow(routers []Router) []Router {
	var kept []Router
	id, here := func(r Router) string { return r.ID }, func(r Router) bool { return r.Here }
	for _, r := range selectRouters(routers, o.Router, id, here) {
		if o.Interface != "" {
			r.Interfaces = slices.DeleteFunc(slices.Clone(r.Interfaces), func(i Interface) bool {
				return i.Interface != o.Interface
			})
		}
		kept = append(kept, r)
	}
	return kept
}

// attached tells whether culvert is on any of the interfaces to show.
func (s sample) attached() bool {
	return slices.ContainsFunc(s.routers, func(r Router) bool { return len(r.Interfaces) > 0 })
}

// neverAttached returns the error for an interface that no sample had.
func (o WatchOptions) neverAttached() error {
	if o.Router != "" {
		return fmt.Errorf("router %s is not attached to an interface %s: 'culvert status' lists those that it is attached to", o.Router, o.Interface)
	}
	return fmt.Errorf("culvert is not attached to an interface %s: 'culvert status' lists those that it is attached to", o.Interface)
}

// waitingFor says what has to appear, if there is nothing to show.
func (o WatchOptions) waitingFor() string {
	switch {
	case o.Interface != "" && o.Router != "":
		return fmt.Sprintf("data plane %s is not attached to %s yet, waiting", o.Router, o.Interface)
	case o.Interface != "":
		return fmt.Sprintf("culvert is not attached to an interface %s yet, waiting", o.Interface)
	case o.Router != "":
		return fmt.Sprintf("no data plane %s now, waiting", o.Router)
	default:
		return "culvert is not attached anywhere on this machine yet, waiting"
	}
}
