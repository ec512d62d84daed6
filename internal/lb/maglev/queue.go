// SPDX-License-Identifier: Apache-2.0

package maglev

// turns are the next turns of the backends of one weight. Turns are in the order of their times. The time of a
// backend's first turn is 0, so that every backend has one. The following times are 3, 5, 7 ... halves of 1/weight.
// So a backend of weight 1 need not wait until one of weight 1,000 has had 1,000 turns, and shares are rounded to
// the nearest number (the method of Sainte-Laguë). Times do not depend on other backends, so adding or removing one
// does not change the order of the others.
type turns struct {
	half   uint32 // the time in halves of 1/weight
	weight uint32
	walks  []walk
}

// before reports whether t comes before o. At equal times, heavier backends come first.
func (t turns) before(o turns) bool {
	a, b := uint64(t.half)*uint64(o.weight), uint64(o.half)*uint64(t.weight)
	return a < b || a == b && t.weight > o.weight
}

// queue is a heap with the earliest turns on top.
type queue []turns

// queueOf returns the queue of the first turns of walks, which are sorted with the heaviest first. All times are 0, so
// in this order the queue is a heap.
func queueOf(walks []walk) queue {
	var q queue
	for from := 0; from < len(walks); {
		to := from + 1
		for to < len(walks) && walks[to].weight == walks[from].weight {
			to++
		}
		q = append(q, turns{weight: walks[from].weight, walks: walks[from:to]})
		from = to
	}
	return q
}

// advance replaces the earliest turns by the next turns of the same backends.
func (q queue) advance() {
	t := q[0]
	t.half += 2
	if t.half == 2 {
		t.half = 3
	}
	at := 0
	for {
		child := 2*at + 1
		if child >= len(q) {
			break
		}
		if child+1 < len(q) && q[child+1].before(q[child]) {
			child++
		}
		if !q[child].before(t) {
			break
		}
		q[at] = q[child]
		at = child
	}
	q[at] = t
}
