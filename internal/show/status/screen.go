// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"
	"time"

	"culvert/internal/show/screen"
)

// live is what the live table shows.
type live struct {
	opts WatchOptions
	// last and now are the two latest samples, flows the rates between them.
	last, now sample
	flows     []flow
	started   time.Time
	chosen    flowKey
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

// take makes a sample the latest one.
func (l *live) take(now sample) {
	l.last, l.now = l.now, now
	l.flows = flows(l.last, l.now)
	if l.chosenIndex() < 0 && len(l.flows) > 0 {
		l.chosen = l.flows[0].key
	}
}

// chosenIndex is where the chosen interface is in flows, -1 if it is gone.
func (l *live) chosenIndex() int {
	return slices.IndexFunc(l.flows, func(f flow) bool { return f.key == l.chosen })
}

// press does what a key is for, if it has to do with what is shown.
func (l *live) press(key string) bool {
	switch key {
	case "up", "k", "shift+tab":
		l.choose(-1)
	case "down", "j", "tab":
		l.choose(1)
	case "v":
		l.sentences = !l.sentences
	case "?", "h":
		l.help = !l.help
	case "esc":
		had := l.help
		l.help = false
		return had
	default:
		return false
	}
	return true
}

// choose moves the choice on, around the ends.
func (l *live) choose(by int) {
	if n := len(l.flows); n > 0 {
		l.chosen = l.flows[(max(l.chosenIndex(), 0)+by+n)%n].key
	}
}
