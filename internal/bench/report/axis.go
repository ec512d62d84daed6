// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"strconv"
)

// axis maps values from lo to hi to pixels between from and to.
type axis struct {
	lo, hi   float64
	log      bool
	from, to float64
}

// at is the pixel of a value. A value outside of the axis is at its end.
func (a axis) at(v float64) float64 {
	lo, hi := a.lo, a.hi
	if a.log {
		lo, hi, v = math.Log10(lo), math.Log10(hi), math.Log10(max(v, a.lo))
	}
	if hi <= lo || math.IsNaN(v) {
		return a.from
	}
	share := min(max((v-lo)/(hi-lo), 0), 1)
	return a.from + share*(a.to-a.from)
}

// on returns the same axis between other pixels.
func (a axis) on(from, to float64) axis {
	a.from, a.to = from, to
	return a
}

// tick is a mark on an axis.
type tick struct {
	value float64
	label string
}

// linearAxis makes an axis that holds all values and zero. It has four to ten marks at round distances, and ends at marks.
func linearAxis(values []float64) (axis, []tick) {
	lo, hi := 0.0, 0.0
	for _, v := range values {
		lo, hi = min(lo, v), max(hi, v)
	}
	if hi <= lo {
		hi = 1
	}
	// The step is a power of ten, or two or five times one.
	step := math.Pow(10, math.Floor(math.Log10((hi-lo)/5)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if (hi-lo)/(step*factor) <= 7 {
			step *= factor
			break
		}
	}
	a := axis{lo: math.Floor(lo/step) * step, hi: math.Ceil(hi/step-1e-9) * step}
	first := int(math.Round(a.lo / step))
	last := int(math.Round(a.hi / step))
	decimals := max(0, int(-math.Floor(math.Log10(step)+1e-9)))
	var ticks []tick
	for i := first; i <= last; i++ {
		v := float64(i) * step
		ticks = append(ticks, tick{v, strconv.FormatFloat(v, 'f', decimals, 64)})
	}
	return a, ticks
}

// logAxis makes a logarithmic axis that holds all values above zero. Marks are powers of ten and, if those are few, also twice
// and five times a power of ten. The axis ends at marks.
func logAxis(values []float64) (axis, []tick) {
	lo, hi := math.Inf(1), 0.0
	for _, v := range values {
		if v > 0 {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	if hi == 0 {
		lo, hi = 1, 10
	}
	var marks []tick
	fine := hi/lo < 500
	for e := math.Floor(math.Log10(lo)); e <= math.Ceil(math.Log10(hi)); e++ {
		for _, factor := range []float64{1, 2, 5} {
			if factor == 1 || fine {
				v := factor * math.Pow(10, e)
				marks = append(marks, tick{v, strconv.FormatFloat(v, 'g', 12, 64)})
			}
		}
	}
	// Of the marks outside of the values only the nearest on each side are kept.
	for len(marks) > 2 && marks[1].value <= lo {
		marks = marks[1:]
	}
	for len(marks) > 2 && marks[len(marks)-2].value >= hi {
		marks = marks[:len(marks)-1]
	}
	return axis{lo: marks[0].value, hi: marks[len(marks)-1].value, log: true}, marks
}

// shareAxis makes an axis for shares of all packets, 0.5 to largest or more. Its values are tail(share) on a logarithmic scale, so
// that the distances from 90 to 99 % and from 99 to 99.9 % are the same.
func shareAxis(largest float64) (axis, []tick) {
	a := axis{lo: 2, hi: max(tail(largest), 1000), log: true}
	var ticks []tick
	for _, t := range []tick{{0.5, "50"}, {0.9, "90"}, {0.99, "99"}, {0.999, "99.9"}, {0.9999, "99.99"}, {0.99999, "99.999"}} {
		if v := tail(t.value); v <= a.hi*(1+1e-9) {
			ticks = append(ticks, tick{v, t.label})
		}
	}
	return a, ticks
}

// tail is 1/(1-share): one in so many packets is beyond the share.
func tail(share float64) float64 { return 1 / max(1-share, 1e-6) }
