// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"log/slog"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/events"
	"culvert/internal/stats"
)

// lossPeriod is the time between two looks at what is lost and limited, and lossEnd after how many looks without more that has ended.
const (
	lossPeriod = 2 * time.Second
	lossEnd    = 5
)

// watchLosses has an event for each interface where packets begin to be lost, or to be over a limit, and when that ends. Nothing is
// looked at while nobody reads events.
func (p *process) watchLosses(ctx context.Context) {
	tick := time.NewTicker(lossPeriod)
	defer tick.Stop()
	var w lossWatch
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !p.events.Followed() {
			w = lossWatch{}
			continue
		}
		inst, err := datapath.OpenHere(p.now.Load().name)
		if inst == nil || err != nil {
			continue
		}
		ports, err := inst.Ports()
		inst.Close()
		if err == nil {
			w.look(ports, func(text string, fields ...any) { p.log.Log(ctx, events.Level, text, fields...) })
		}
	}
}

// counted is what counts losses, or packets over a limit: on an interface, for a kind of loss or a reason.
type counted struct {
	iface, what string
	limit       bool
}

// words are those of events: the name of the field, and the texts of a beginning and an end.
func (c counted) words() (name, begins, ends string) {
	if c.limit {
		return "reason", "packets are limited", "packets are not limited any more"
	}
	return "loss", "packets are lost", "no more packets are lost"
}

// lossWatch remembers what was lost and limited.
type lossWatch struct {
	ports  map[string]bool // that the look before has seen
	before map[counted]uint64
	quiet  map[counted]int // looks since the last packet, of what has begun
}

// look compares counters with those of the look before, and tells what has begun and ended. An interface's counters are compared from the
// second look on that sees it.
func (w *lossWatch) look(ports []stats.Port, tell func(text string, fields ...any)) {
	now, seen := make(map[counted]uint64), make(map[string]bool)
	for _, port := range ports {
		seen[port.Interface] = true
		for kind, n := range port.Losses {
			now[counted{port.Interface, kind, false}] += n
		}
		for _, r := range port.Reasons {
			if r.Limited || r.Name == stats.ReasonFilterLimit {
				now[counted{port.Interface, r.Name, true}] += r.Packets
			}
		}
	}
	if w.quiet == nil {
		w.quiet = make(map[counted]int)
	}
	for c, n := range now {
		if _, on := w.quiet[c]; w.ports[c.iface] && n > w.before[c] {
			if name, begins, _ := c.words(); !on {
				tell(begins, "interface", c.iface, name, c.what, "packets", n-w.before[c])
			}
			w.quiet[c] = -1
		}
	}
	for c := range w.quiet { // also of interfaces that have gone
		if w.quiet[c]++; w.quiet[c] > lossEnd {
			name, _, ends := c.words()
			tell(ends, "interface", c.iface, name, c.what)
			delete(w.quiet, c)
		}
	}
	w.ports, w.before = seen, now
}

// logCapture logs that a program begins or ends to capture.
func (p *process) logCapture(text string, err error, fields ...any) {
	level := slog.LevelInfo
	if err != nil {
		fields, level = append(fields, "err", err), slog.LevelWarn
	}
	p.log.Log(context.Background(), level, text, fields...)
}
