// SPDX-License-Identifier: Apache-2.0

package maglev

// turns are the next turns of the backends of one weight. Their time is half/weight: 0 for the first, so that
// everybody has one, then 3, 5, 7 ... halves of 1/weight. Spread over time like this, a backend of weight 1 does
// not wait until one of weight 1,000 has had 1,000 turns, and shares come out rounded to the nearest (the method
// of Sainte-Laguë). Times do not depend on the other backends: who comes or goes does not change the order of the
// others.
type turns struct {
	half   uint32
	weight uint32
	walks  []walk
}

// before tells who is earlier; at one time the heavier are.
func (t turns) before(o turns) bool {
	a, b := uint64(t.half)*uint64(o.weight), uint64(o.half)*uint64(t.weight)
	return a < b || a == b && t.weight > o.weight
}

// queue is a heap with the earliest turns on top.
type queue []turns

// queueOf takes walks with the heaviest first. With all times 0, in this order they are a heap.
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

// advance replaces the earliest turns by those of the same backends after them.
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
