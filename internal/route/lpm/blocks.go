// SPDX-License-Identifier: Apache-2.0

package lpm

import (
	"sync/atomic"
	"time"
)

// Grace is how long a block keeps its contents after the last entry that led to it is gone. A program reads for far
// less than that: it neither sleeps nor waits on its way through the table.
const Grace = time.Second

// Tick tells the time, on any clock that never goes back, read right before the call. Superfluous blocks come back into
// use only here: at the first Tick at least Grace after the first Tick that followed their removal. A late Tick thus
// delays their use and never makes it early.
func (t *Table) Tick(now time.Duration) {
	for t.waiting > 0 && now-t.since[t.at(t.free)] >= Grace {
		t.free++
		t.waiting--
	}
	for t.fresh > 0 {
		t.since[t.at(t.free+t.waiting)] = now
		t.waiting++
		t.fresh--
	}
}

// Reset empties the table: every address has the answer 0, and nothing is lost any more. Since it may follow New in
// memory that readers know already, no block counts as unused before Grace has passed, in two calls of Tick; what needs
// a block until then is lost. So wait until BlocksUsed is 0.
func (t *Table) Reset() {
	for i := range t.root {
		if t.root[i] != 0 {
			atomic.StoreUint32(&t.root[i], 0)
		}
	}
	t.lost = 0
	for i := range t.queue {
		t.queue[i] = uint32(i)
	}
	t.head, t.free, t.waiting, t.fresh = 0, 0, 0, len(t.queue)
}

// BlocksUsed is how many blocks are in use or must not be used again yet.
func (t *Table) BlocksUsed() int { return len(t.queue) - t.free }

// BlocksTotal is how many blocks there are.
func (t *Table) BlocksTotal() int { return len(t.queue) }

// take gives a free block.
func (t *Table) take() (number uint32, ok bool) {
	if t.free == 0 {
		return 0, false
	}
	number = t.queue[t.head]
	t.head = t.at(1)
	t.free--
	return number, true
}

// retire takes back a block that readers may still be in.
func (t *Table) retire(number uint32) {
	t.queue[t.at(t.free+t.waiting+t.fresh)] = number
	t.fresh++
}

// at is the place in the ring that is i after the head.
func (t *Table) at(i int) int {
	if i += t.head; i >= len(t.queue) {
		i -= len(t.queue)
	}
	return i
}
