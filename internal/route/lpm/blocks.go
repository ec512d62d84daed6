// SPDX-License-Identifier: Apache-2.0

package lpm

import (
	"sync/atomic"
	"time"
)

// Grace is how long a block keeps its contents after the last entry that led to it was replaced. A program reads for far
// less than that, because it neither sleeps nor waits during a lookup.
const Grace = time.Second

// Tick lets blocks that are no longer needed come back into use. now is read right before the call, from any clock that
// never goes back. Grace counts from the first Tick after a block's removal, so a late Tick only delays its use.
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

// Reset empties the table: every address has the value 0, and none is lost. Readers may be in any block, because Reset
// may follow New in memory that was in use before. So all blocks count as used until two calls of Tick, Grace apart, have
// followed. An Insert that needs a block before that loses its addresses: wait until BlocksUsed returns 0.
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

// BlocksUsed returns how many blocks are in use, or must not be used again yet.
func (t *Table) BlocksUsed() int { return len(t.queue) - t.free }

// BlocksTotal returns how many blocks there are.
func (t *Table) BlocksTotal() int { return len(t.queue) }

// take allocates a free block.
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

// at returns the index in the ring that is i after the head.
func (t *Table) at(i int) int {
	if i += t.head; i >= len(t.queue) {
		i -= len(t.queue)
	}
	return i
}
