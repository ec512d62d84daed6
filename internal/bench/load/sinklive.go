// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"culvert/internal/bench/report"
	"culvert/internal/show"
	"culvert/internal/show/text"
)

// ListenOptions says what ListenOn counts.
type ListenOptions struct {
	// Device is an interface of the calling thread's network namespace.
	Device string
	// Flows is the largest number of flows, if Port is 0: only stamped frames are counted then.
	Flows int
	// Port, if not 0, selects UDP packets for that port instead, with or without stamps.
	Port uint16
	// Duration is how long to count, 0 for until ctx ends.
	Duration time.Duration
	// Progress receives a line a second.
	Progress io.Writer
}

// ListenReport says what arrived.
type ListenReport struct {
	Interface string `json:"interface"`
	// Seconds is from the attachment of the sink to the end.
	Seconds float64 `json:"seconds"`
	Packets uint64  `json:"packets"`
	Bytes   uint64  `json:"bytes"`
	// Other counts frames that went to the stack.
	Other uint64 `json:"other"`
	// Order and Latency are nil if stamps were not read.
	Order   *report.Order   `json:"order,omitempty"`
	Latency *report.Latency `json:"latency,omitempty"`
}

// ListenOn attaches a sink to a device until o.Duration is over or ctx ends, which is no error. The sink drops the frames
// that it counts. All others go to the stack.
func ListenOn(ctx context.Context, o ListenOptions) (r *ListenReport, err error) {
	if o.Duration < 0 {
		return nil, optionErrorf("listen for %v: give a time above 0", o.Duration)
	}
	if o.Port == 0 && (o.Flows < 1 || o.Flows > maxFlows) {
		return nil, optionErrorf("%d flows: there can be 1 to %d", o.Flows, maxFlows)
	}
	s := SinkOptions{Flows: o.Flows}
	if o.Port != 0 {
		s = SinkOptions{Port: o.Port}
	}
	// The device is in the network namespace of this thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	netns, err := CurrentNetns()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, netns.Close()) }()
	at, err := FindEnd(netns, o.Device)
	if err != nil {
		return nil, err
	}
	sink, err := NewSink(at, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sink.Close()) }()
	start := time.Now()
	if o.Duration > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, o.Duration)
		defer stop()
	}
	fmt.Fprintf(o.Progress, "%s: listening\n", o.Device)
	if err := watchSink(ctx, sink, at, o.Progress); err != nil {
		return nil, err
	}
	return listenReport(sink, at, time.Since(start))
}

// watchSink writes a line a second with the rate and the counters of the sink, until ctx ends.
func watchSink(ctx context.Context, sink *Sink, at End, progress io.Writer) error {
	const interval = time.Second
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var last Seen
	for then := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			seen, err := sink.Seen()
			if err != nil {
				return err
			}
			mpps := float64(seen.Packets-last.Packets) / now.Sub(then).Seconds() / 1e6
			fmt.Fprintf(progress, "%s: %.3f Mpps, %s, %s", at.Name, mpps, text.Count(seen.Packets, "packet"), text.Count(seen.Other, "other"))
			if sink.flows > 0 {
				order, err := sink.Order()
				if err != nil {
					return err
				}
				fmt.Fprintf(progress, ", %d missing, %d duplicates, %d reordered", order.Missing, order.Duplicates,
					order.Reordered)
			}
			fmt.Fprintln(progress)
			last, then = seen, now
		}
	}
}

func listenReport(sink *Sink, at End, elapsed time.Duration) (*ListenReport, error) {
	seen, err := sink.Seen()
	if err != nil {
		return nil, err
	}
	r := &ListenReport{
		Interface: at.Name, Seconds: elapsed.Seconds(),
		Packets: seen.Packets, Bytes: seen.Bytes, Other: seen.Other,
	}
	if sink.flows == 0 {
		return r, nil
	}
	order, err := sink.Order()
	if err != nil {
		return nil, err
	}
	h, err := sink.Latency()
	if err != nil {
		return nil, err
	}
	latency := h.Report(0, 0)
	r.Order, r.Latency = &order, &latency
	return r, nil
}

// WriteJSON writes the report as one JSON object.
func (r *ListenReport) WriteJSON(w io.Writer) error {
	return show.JSON(w, r)
}

// WriteText writes the report in lines.
func (r *ListenReport) WriteText(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s: %s, %s in %.3f s; %s left to the stack\n", r.Interface, text.Count(r.Packets, "packet"),
		text.Count(r.Bytes, "byte"), r.Seconds, text.Count(r.Other, "other"))
	if err != nil || r.Order == nil {
		return err
	}
	o, l := r.Order, r.Latency
	_, err = fmt.Fprintf(w, "order: %d missing, %d duplicates, %d reordered (%d of them late)\n"+
		"latency: 50 %% within %.0f ns, 90 %% %.0f, 99 %% %.0f, 99.9 %% %.0f, longest %.0f\n",
		o.Missing, o.Duplicates, o.Reordered, o.Late, l.P50, l.P90, l.P99, l.P999, l.Max)
	return err
}
