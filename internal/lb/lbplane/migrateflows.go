// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
)

/*
migrateFlows copies the flows of a flow table of another size into the table of a new program. It runs three times:

	when the new program is loaded,
	just before it is attached, for the flows since the first run,
	once it is attached (running), for the flows since the second run.

A flow is missed if its first packets reach the old program after the second run and its next packet reaches the new one
before the end of the third. The new program then assigns it by the ring. That is the same backend as before unless the
rings have changed too.

In the third run the new program uses the table already. Then another program inserts each flow (bpf/lb/migrate.bpf.c),
because it can lock the bucket. A flow whose bucket stays locked is not copied.

Expired flows are not copied. A flow that a FIN or RST has closed is copied until it is too old to resume, because the
segment may have been forged. If a bucket of a smaller table overflows, it keeps the flows of more than one packet, and
of those the latest. All others are assigned by the ring from then on.
*/
func (f flowMap) migrateFlows(flows *ebpf.Map, running bool) error {
	from, err := openFlowTable(flows, 0, flows.MaxEntries(), unix.PROT_READ)
	if err != nil {
		return fmt.Errorf("taking over the flows of %s: %w", f.of, err)
	}
	defer from.close()
	to, err := f.open(0, f.buckets(), unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return fmt.Errorf("taking over the flows of %s: %w", f.of, err)
	}
	defer to.close()
	clock, err := f.options.clock()
	if err != nil {
		return fmt.Errorf("taking over the flows of %s: %w", f.of, err)
	}
	insert := func(e flowEntry) error {
		to.insert(e, clock)
		return nil
	}
	if running {
		c, err := f.loadMigrator()
		if err != nil {
			return fmt.Errorf("taking over the flows of %s: %w", f.of, err)
		}
		defer c.Close()
		insert = func(e flowEntry) error {
			if _, way, known := to.place(e, clock); known || way < 0 {
				return nil
			}
			_, err := c.insert(e)
			return err
		}
	}
	gcClock := clock
	gcClock.idle = f.options.gcIdle()
	from.visit(func(k flowKey, backend BackendID, t uint16) bool {
		if !gcClock.expired(t) {
			err = insert(flowEntry{k, k.hash(f.secret), backend, t})
		}
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("taking over the flows of %s: %w", f.of, err)
	}
	return nil
}

// flowEntry is a flow in a flow table.
type flowEntry struct {
	flowKey
	hash    uint64
	backend BackendID
	time    uint16 // of the last packet: ticks in the upper 14 bits, state in the lower 2
}

// insert puts an entry into a table that no program uses yet. It overwrites an entry of the same flow.
func (t flowTable) insert(e flowEntry, clock flowClock) {
	if b, way, _ := t.place(e, clock); way >= 0 {
		writeEntry(b, way, e)
	}
}

// place returns the bucket and the way for an entry: the way that has the flow already (known), else a free one, else the
// one with the least worth below that of the entry, else -1.
func (t flowTable) place(e flowEntry, clock flowClock) (b *bpfobj.PipelineLbBucket, victim int, known bool) {
	tag := flowTag(e.hash)
	b = &t.buckets[scaled(e.hash, uint32(len(t.buckets)))]
	victim, least := -1, clock.worth(e.time)+1
	for way, other := range b.Tag {
		if other == tag {
			if k, _, ok := readEntry(&b.Entry[way]); ok && k == e.flowKey {
				return b, way, true
			}
		}
		var worth uint32
		if other != 0 {
			worth = clock.worth(b.Time[way]) + 1 // a free way has 0
		}
		if worth < least {
			victim, least = way, worth
		}
	}
	return b, victim, false
}

// writeEntry writes a way as lb_entry_write of bpf/lb/flow_insert.h does, but without the bucket's lock: nobody would
// unlock the bucket if this process were killed.
func writeEntry(b *bpfobj.PipelineLbBucket, way int, e flowEntry) {
	to := &b.Entry[way]
	seq := atomic.LoadUint32(&to.Seq) | 1
	atomic.StoreUint32(&to.Seq, seq)
	atomic.StoreUint64(&to.Src[0], e.src[0])
	atomic.StoreUint64(&to.Src[1], e.src[1])
	atomic.StoreUint32(&to.Ports, e.ports)
	atomic.StoreUint32(&to.Vip, e.vip)
	atomic.StoreUint32(&to.Backend, uint32(e.backend))
	b.Time[way], b.Tag[way] = e.time, flowTag(e.hash)
	atomic.StoreUint32(&to.Seq, seq+1)
}
