// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"
	"time"

	"culvert/internal/show/screen"
)

// live is the state of the live table.
type live struct {
	opts WatchOptions
	// last and now are the two latest samples, and flows are the rates between them.
	last, now sample
	flows     []flow
	started   time.Time
	selected  flowKey
	help      bool
	// sentences tells whether each reason is explained.
	sentences bool
}

func newLive(o WatchOptions, first sample) *live {
	l := &live{opts: o, now: first, started: first.at, sentences: o.Verbose}
	l.take(first)
	return l
}

func (l *live) view() screen.View {
	return screen.View{Lines: l.lines, Look: l.look, Press: l.press, Keys: keysLine}
}

func (l *live) look() (func(), error) {
	now, err := l.opts.look()
	return func() { l.take(now) }, err
}

// take replaces the older of the two samples by a new one.
func (l *live) take(now sample) {
	l.last, l.now = l.now, now
	l.flows = flows(l.last, l.now)
	if l.selectedIndex() < 0 && len(l.flows) > 0 {
		l.selected = l.flows[0].key
	}
}

// selectedIndex returns the index of the selected interface in flows, -1 if it is not there any more.
func (l *live) selectedIndex() int {
	return slices.IndexFunc(l.flows, func(f flow) bool { return f.key == l.selected })
}

// press handles a key and tells whether the table has a use for it.
func (l *live) press(key string) bool {
	switch key {
	case "up", "k", "shift+tab":
		l.move(-1)
	case "down", "j", "tab":
		l.move(1)
	case "v":
		l.sentences = !l.sentences
	case "?", "h":
		l.help = !l.help
	case "esc":
		closes := l.help
		l.help = false
		return closes
	default:
		return false
	}
	return true
}

// move moves the selection by a number of interfaces, and on to the other end behind the last.
func (l *live) move(by int) {
	if n := len(l.flows); n > 0 {
		l.selected = l.flows[(max(l.selectedIndex(), 0)+by+n)%n].key
	}
}
