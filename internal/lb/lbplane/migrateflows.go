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
migrateFlows brings the flows of a flow table of another size into the new program's. It is called once that program is
ready, again just before it comes into force, for the flows of the meantime, and once more (running) when it is in
force, for those that have come then. A flow whose first packets the old program has seen after the second time, and
whose next one the new program sees before the third is over, is one that the new program does not know: it gives it the
backend that the ring says, which is the one that it has got before unless the rings have changed with the swap.

While programs run, each flow is taken in by a program too (bpf/lb/migrate.bpf.c), which has the bucket to itself meanwhile. One whose
bucket stays busy is left behind.

Flows that have expired stay behind too, but those that FIN or RST has closed come along for as long as they may go on: the
segment may have been forged. If a bucket of a smaller table overflows, those remain that have had more than one
packet, and of them the latest; the others go by the ring from then on.
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
	take := func(e flowEntry) error {
		to.insert(e, clock)
		return nil
	}
	if running {
		c, err := f.loadMigrator()
		if err != nil {
			return fmt.Errorf("taking over the flows of %s: %w", f.of, err)
		}
		defer c.Close()
		take = func(e flowEntry) error {
			if _, way, known := to.place(e, clock); known || way < 0 {
				return nil
			}
			return c.take(e)
		}
	}
	kept := clock
	kept.idle = f.options.gcIdle()
	from.visit(func(k flowKey, backend BackendID, t uint16) bool {
		if !kept.expired(t) {
			err = take(flowEntry{k, k.hash(f.secret), backend, t})
		}
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("taking over the flows of %s: %w", f.of, err)
	}
	return nil
}

// flowEntry is what a flow table has of a flow.
type flowEntry struct {
	flowKey
	hash    uint64
	backend BackendID
	time    uint16 // and state
}

// insert puts an entry into a table that no program works on yet. An entry of the same flow is brought up to it.
func (t flowTable) insert(e flowEntry, clock flowClock) {
	if b, way, _ := t.place(e, clock); way >= 0 {
		writeEntry(b, way, e)
	}
}

// place returns where an entry belongs: the way that its flow has already (known), else a free one or one that is worth
// less, and -1 if there is none.
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
			worth = clock.worth(b.Time[way]) + 1 // a free way is better
		}
		if worth < least {
			victim, least = way, worth
		}
	}
	return b, victim, false
}

// writeEntry is what lb_entry_write of bpf/lb/flow_insert.h does with a way, but without the bucket's lock: a process may be killed
// while it has that.
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
