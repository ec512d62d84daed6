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

// at is the pixel of a value. What lies outside is drawn at the edge.
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

// on is the same axis between other pixels.
func (a axis) on(from, to float64) axis {
	a.from, a.to = from, to
	return a
}

// tick is a mark on an axis.
type tick struct {
	value float64
	label string
}

// linearAxis holds all values and zero, and ends at marks: four to ten of them, a round distance apart.
func linearAxis(values []float64) (axis, []tick) {
	lo, hi := 0.0, 0.0
	for _, v := range values {
		lo, hi = min(lo, v), max(hi, v)
	}
	if hi <= lo {
		hi = 1
	}
	// Twice the power of ten below a fifth of the range, or five times it.
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

// logAxis holds all values above zero and ends at powers of ten, or at twice or five times one. Marks are powers of
// ten; where those are few, twice and five times as well.
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
	// Only the last mark below and the first above all values are needed.
	for len(marks) > 2 && marks[1].value <= lo {
		marks = marks[1:]
	}
	for len(marks) > 2 && marks[len(marks)-2].value >= hi {
		marks = marks[:len(marks)-1]
	}
	return axis{lo: marks[0].value, hi: marks[len(marks)-1].value, log: true}, marks
}

// shareAxis is for shares of all packets, 0 to 1, as 1/(1-share) on a log scale: each nine has the same room.
func shareAxis(most float64) (axis, []tick) {
	a := axis{lo: 2, hi: max(tail(most), 1000), log: true}
	var ticks []tick
	for _, t := range []tick{{0.5, "50"}, {0.9, "90"}, {0.99, "99"}, {0.999, "99.9"}, {0.9999, "99.99"}, {0.99999, "99.999"}} {
		if v := tail(t.value); v <= a.hi*(1+1e-9) {
			ticks = append(ticks, tick{v, t.label})
		}
	}
	return a, ticks
}

// tail is how many packets there are for each one beyond a share.
func tail(share float64) float64 { return 1 / max(1-share, 1e-6) }
