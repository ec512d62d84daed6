// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"culvert/internal/bpfobj"
)

// TestMigrateLocked migrates flows to a table whose buckets are all locked. Migration skips locked buckets and does not wait for
// them.
func TestMigrateLocked(t *testing.T) {
	from, to := bareTable(t, 7000), bareTable(t, 700)
	fillTable(t, from, 600)
	lock := func(value uint32) {
		openTable(t, to.flows, func(table flowTable) {
			for n := range table.buckets {
				table.buckets[n].Lock = value
			}
		})
	}
	lock(1)
	if err := to.migrateFlows(from.flows, true); err != nil {
		t.Fatal(err)
	}
	if n := len(tableEntries(to)); n > 0 {
		t.Fatalf("%d flows were written into locked buckets", n)
	}
	lock(0)
	if err := to.migrateFlows(from.flows, true); err != nil {
		t.Fatal(err)
	}
	if n := len(tableEntries(to)); n < 100 {
		t.Errorf("%d flows were migrated", n)
	}
	openTable(t, to.flows, func(table flowTable) {
		for n := range table.buckets {
			if table.buckets[n].Lock != 0 {
				t.Errorf("bucket %d is locked", n)
			}
		}
	})
}

// TestMigrateRunning migrates flows to tables of other sizes in the way that is used while programs run. If a bucket has no room
// for all of its flows, the ones with the highest worth are kept.
func TestMigrateRunning(t *testing.T) {
	const flows = 400
	from := bareTable(t, flows)
	before := fillTable(t, from, flows)
	for _, size := range []int{3 * flows, flows / 8} {
		to := bareTable(t, size)
		for range 2 { // the second time changes nothing
			if err := to.migrateFlows(from.flows, true); err != nil {
				t.Fatal(err)
			}
		}
		late, err := from.options.clock()
		if err != nil {
			t.Fatal(err)
		}
		buckets := uint32(bucketsFor(size))
		count, least := make(map[uint32]int), make(map[uint32]uint32)
		after := tableEntries(to)
		for k, e := range after {
			if before[k] != e {
				t.Fatalf("room for %d: %+v, was %+v", size, e, before[k])
			}
			n := scaled(e.hash, buckets)
			if worth := late.worth(e.time); count[n] == 0 || worth < least[n] {
				least[n] = worth
			}
			count[n]++
		}
		lost := 0
		for k, e := range before {
			if _, ok := after[k]; ok || late.expired(e.time) {
				continue
			}
			lost++
			// An entry that has expired meanwhile had a higher worth when it was migrated.
			if n := scaled(e.hash, buckets); count[n] < bucketWays || least[n] > 0 && late.worth(e.time) > least[n] {
				t.Fatalf("room for %d: lost %+v, in its bucket are %d of which the least is worth %d", size, e, count[n], least[n])
			}
		}
		if small := size < flows; small != (lost > 0) || len(after) < size/2 && small || len(after) < flows/8 {
			t.Errorf("room for %d: %d flows, %d lost", size, len(after), lost)
		}
	}
}

// TestMigrateBusy migrates flows to a table while programs insert other flows into the same buckets. No entry may have the client
// of one flow and the backend of another.
func TestMigrateBusy(t *testing.T) {
	const clients = 400
	from := bareTable(t, 70)
	b := newBed(t, Options{Flows: 70, InsertRate: 1_000_000_000})
	one := b.backend(1, 0, "10.0.0.11")
	b.vip(0, vip4, protoTCP, []Backend{one})
	other := NewBackendID(2, 1)
	r := rand.New(rand.NewPCG(5, 6))
	client := func(net byte, n int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, net, byte(1 + n%200)}), uint16(1+r.IntN(60_000)))
	}
	frames := make([][]byte, clients)
	for n := range frames {
		frames[n] = b.packet(client(100, n).String(), vip4, &layers.TCP{SYN: true}, nil)
	}
	worker := b.worker()
	for begin := time.Now(); time.Since(begin) < time.Second; {
		clock, err := from.options.clock()
		b.must(err)
		openTable(t, from.flows, func(table flowTable) {
			for n := range clients {
				k := newFlowKey(0, client(200, n), 80)
				table.insert(flowEntry{k, k.hash(from.secret), other, uint16(clock.now << 2)}, clock)
			}
		})
		b.buckets(func(bucket *bpfobj.PipelineLbBucket) { *bucket = bpfobj.PipelineLbBucket{} })
		var wg sync.WaitGroup
		wg.Add(1)
		worker <- func() {
			defer wg.Done()
			for _, f := range frames {
				if _, err := b.raw(f); err != nil {
					t.Error(err)
				}
			}
		}
		err = flowsOf(b.inst).migrateFlows(from.flows, true)
		wg.Wait()
		b.must(err)
		b.buckets(func(bucket *bpfobj.PipelineLbBucket) {
			if bucket.Lock != 0 {
				t.Error("a bucket is locked")
			}
		})
		for k, e := range tableEntries(flowsOf(b.inst)) {
			from, _ := k.client()
			want := map[byte]BackendID{100: one.ID, 200: other}[from.Addr().As4()[2]]
			if e.backend != want {
				t.Fatalf("%v has backend %#x, not %#x", from, e.backend, want)
			}
		}
	}
}
