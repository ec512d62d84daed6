// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

/*
carryFlows brings the flows of a flow table of another size into the new program's. It is called once that program is
ready, again just before it comes into force, for the flows of the meantime, and once more (running) when it is in
force, for those that have come then. A flow whose first packets the old program has seen after the second time, and
whose next one the new program sees before the third is over, is one that the new program does not know: it gives it the
backend that the ring says, which is the one that it has got before unless the rings have changed with the swap.

Flows that have expired stay behind. If a bucket of a smaller table overflows, those remain that have had more than one
packet, and of them the latest; the others go by the ring from then on.
*/
func (i *Instance) carryFlows(running bool) error {
	if i.flowsFrom == nil {
		return nil
	}
	from, err := openBalanceTable(i.flowsFrom, 0, i.flowsFrom.MaxEntries(), unix.PROT_READ)
	if err != nil {
		return fmt.Errorf("taking over the flows of %s: %w", i.Name(), err)
	}
	defer from.close()
	m := i.maps[pipelineMapBalanceFlows]
	to, err := openBalanceTable(m, 0, m.MaxEntries(), unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return fmt.Errorf("taking over the flows of %s: %w", i.Name(), err)
	}
	defer to.close()
	clock, err := i.meta.Balance.clock()
	if err != nil {
		return fmt.Errorf("taking over the flows of %s: %w", i.Name(), err)
	}
	secret := i.meta.balanceSecret()
	from.visit(func(k balanceKey, owner BalanceOwner, t uint16) bool {
		if !clock.expired(t) {
			to.insert(balanceEntry{k, k.hash(secret), owner, t}, clock, running)
		}
		return true
	})
	return nil
}

// balanceEntry is what a flow table has of a flow.
type balanceEntry struct {
	balanceKey
	hash  uint64
	owner BalanceOwner
	time  uint16 // and state
}

// insert puts an entry into the table. An entry of the same flow is brought up to it, unless the programs run, which know
// better.
func (t balanceTable) insert(e balanceEntry, clock balanceClock, running bool) {
	b, tag := &t.buckets[scaled(e.hash, uint32(len(t.buckets)))], balanceTag(e.hash)
	victim, least := -1, clock.worth(e.time)+1
	for way, other := range b.Tag {
		if other == tag {
			if k, _, ok := balanceRead(&b.Entry[way]); ok && k == e.balanceKey {
				if !running {
					b.write(way, e)
				}
				return
			}
		}
		var worth uint32
		if other != 0 {
			worth = clock.worth(b.Time[way]) + 1 // a free way is better
		}
		if worth < least {
			victim, least = way, worth
		}
	}
	if victim >= 0 {
		b.write(victim, e)
	}
}

// write is what balance_insert of bpf/balance_flow.h does with a way; it leaves one alone that a program writes.
func (b *pipelineBalanceBucket) write(way int, e balanceEntry) {
	to := &b.Entry[way]
	lock := atomic.LoadUint32(&to.Lock)
	if lock&1 != 0 || !atomic.CompareAndSwapUint32(&to.Lock, lock, lock+1) {
		return
	}
	atomic.StoreUint64(&to.Src[0], e.src[0])
	atomic.StoreUint64(&to.Src[1], e.src[1])
	atomic.StoreUint32(&to.Ports, e.ports)
	atomic.StoreUint32(&to.Vip, e.vip)
	atomic.StoreUint32(&to.Owner, uint32(e.owner))
	b.Time[way], b.Tag[way] = e.time, balanceTag(e.hash)
	atomic.StoreUint32(&to.Lock, lock+2)
}
