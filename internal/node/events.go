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

// lossWatch remembers what was lost and limited.
type lossWatch struct {
	before map[counted]uint64
	quiet  map[counted]int // looks since the last packet, of what has begun
}

// look compares counters with those of the look before, and tells what has begun and ended.
func (w *lossWatch) look(ports []stats.Port, tell func(text string, fields ...any)) {
	now := make(map[counted]uint64)
	for _, port := range ports {
		for kind, n := range port.Losses {
			now[counted{port.Interface, kind, false}] += n
		}
		for _, r := range port.Reasons {
			if r.Limited {
				now[counted{port.Interface, r.Name, true}] += r.Packets
			}
		}
	}
	first := w.before == nil
	if w.quiet == nil {
		w.quiet = make(map[counted]int)
	}
	for c, n := range now {
		name, begins, ends := "loss", "packets are lost", "no more packets are lost"
		if c.limit {
			name, begins, ends = "reason", "packets are limited", "packets are not limited any more"
		}
		_, on := w.quiet[c]
		switch more := !first && n > w.before[c]; {
		case more && !on:
			tell(begins, "interface", c.iface, name, c.what, "packets", n-w.before[c])
			w.quiet[c] = 0
		case more:
			w.quiet[c] = 0
		case on && w.quiet[c] >= lossEnd:
			tell(ends, "interface", c.iface, name, c.what)
			delete(w.quiet, c)
		case on:
			w.quiet[c]++
		}
	}
	w.before = now
}

// logCapture logs that a program begins or ends to capture.
func (p *process) logCapture(text string, err error, fields ...any) {
	level := slog.LevelInfo
	if err != nil {
		fields, level = append(fields, "err", err), slog.LevelWarn
	}
	p.log.Log(context.Background(), level, text, fields...)
}
