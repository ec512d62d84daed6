// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
)

// openTable maps the whole flow table and calls do with it.
func openTable(t *testing.T, m *ebpf.Map, do func(flowTable)) {
	t.Helper()
	table, err := openFlowTable(m, 0, m.MaxEntries(), unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		t.Fatal(err)
	}
	do(table)
	table.close()
}

// TestFlows lists flows in all their states.
func TestFlows(t *testing.T) {
	b := newBed(t, Options{Flows: 1000})
	one := b.backend(1, 3, "10.0.0.11")
	b.vip(3, "192.0.2.1:80", 6, []Backend{one})
	b.vip(4, "[2001:db8::1]:0", 17, []Backend{one})
	send := func(from string, flags ...layers.TCP) {
		for _, f := range flags {
			b.run(b.packet(from, "192.0.2.1:80", &f, nil))
		}
	}
	syn, ack, fin := layers.TCP{SYN: true}, layers.TCP{ACK: true}, layers.TCP{FIN: true, ACK: true}
	send("203.0.113.1:1000", syn)
	send("203.0.113.2:1000", syn, ack)
	send("203.0.113.3:1000", syn, ack, fin)
	for range 2 {
		b.run(b.packet("[2001:db8:1::1]:53", "[2001:db8::1]:443", &layers.UDP{}, nil))
	}
	list := func() (all []Flow) {
		t.Helper()
		b.must(b.plane.Flows(func(f Flow) bool {
			if f.Idle > Tick { // a tick may end meanwhile
				t.Errorf("idle for %v", f.Idle)
			}
			f.Idle = 0
			all = append(all, f)
			return true
		}))
		slices.SortFunc(all, func(a, b Flow) int { return a.Client.Compare(b.Client) })
		return all
	}
	flow := func(vip uint32, client string, port uint16, state string) Flow {
		return Flow{Client: netip.MustParseAddrPort(client), Port: port, VIP: vip, Backend: one.ID, State: state}
	}
	want := []Flow{
		flow(3, "203.0.113.1:1000", 80, "new"), flow(3, "203.0.113.2:1000", 80, "open"), flow(3, "203.0.113.3:1000", 80, "closing"),
		flow(4, "[2001:db8:1::1]:53", 443, "udp"),
	}
	if got := list(); !slices.Equal(got, want) {
		t.Fatalf("flows\n%+v, want\n%+v", got, want)
	}
	calls := 0
	b.must(b.plane.Flows(func(Flow) bool { calls++; return false }))
	if calls != 1 {
		t.Errorf("visited %d flows after the end", calls-1)
	}
	if n, err := b.plane.FlowCounts(); err != nil || len(n) != 1 || n[one.ID] != 4 {
		t.Errorf("counts %v, %v", n, err)
	}

	// After 100 s, flows of one packet and closing flows have expired, and others have not.
	m := b.inst.Map(bpfobj.PipelineMapLbFlows)
	each := func(do func(b *bpfobj.PipelineLbBucket, way int)) {
		openTable(t, m, func(table flowTable) {
			for n := range table.buckets {
				for way, tag := range table.buckets[n].Tag {
					if tag != 0 {
						do(&table.buckets[n], way)
					}
				}
			}
		})
	}
	const ticks = uint16(100 * time.Second / Tick)
	each(func(b *bpfobj.PipelineLbBucket, way int) { b.Time[way] -= ticks << 2 })
	b.must(b.plane.Flows(func(f Flow) bool {
		if f.Idle < 95*time.Second || f.Expired != (f.State == "new" || f.State == "closing") {
			t.Errorf("after 100 s: %+v", f)
		}
		return true
	}))
	if n, err := b.plane.FlowCounts(); err != nil || n[one.ID] != 2 {
		t.Errorf("counts %v, %v", n, err)
	}
	// An entry may be newer than the clock, which is read first.
	each(func(b *bpfobj.PipelineLbBucket, way int) { b.Time[way] += (ticks + 1) << 2 })
	for _, f := range list() {
		if f.Expired {
			t.Errorf("newer than the clock: %+v", f)
		}
	}
	// Entries that are being written are left out.
	each(func(b *bpfobj.PipelineLbBucket, way int) { b.Entry[way].Seq++ })
	if got := list(); len(got) > 0 {
		t.Errorf("being written: %+v", got)
	}
	if f, ok, err := b.plane.FindFlow(3, want[1].Client, 80); ok || err != nil {
		t.Errorf("being written: %+v, %v", f, err)
	}
}

// TestEvents counts what happens to VIPs.
func TestEvents(t *testing.T) {
	b := newBed(t, Options{VIPs: 8})
	b.vip(7, "192.0.2.1:80", 6, nil)
	b.vip(6, "192.0.2.2:80", 6, []Backend{b.backend(1, 6, "10.0.0.11")})
	for range 3 {
		b.expect(b.packet("203.0.113.7:1234", "192.0.2.1:80", &layers.TCP{SYN: true}, nil), "pass lb-empty")
	}
	b.run(b.packet("203.0.113.7:1234", "192.0.2.2:80", &layers.TCP{SYN: true}, nil))
	check := func(vip uint32, want Events) {
		t.Helper()
		if got, err := b.plane.Events(vip); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("events of VIP %d: %v, %v, want %v", vip, got, err, want)
		}
	}
	check(7, Events{"empty": 3})
	check(6, Events{})
	b.must(b.plane.ClearEvents(6))
	check(7, Events{"empty": 3})
	b.must(b.plane.ClearEvents(7))
	check(7, Events{})
	if _, err := b.plane.Events(8); err == nil {
		t.Error("events of a VIP whose number is too large")
	}
}

// bareTable returns a flow table without programs.
func bareTable(t *testing.T, flows int) flowMap {
	t.Helper()
	o, err := (&Options{Flows: flows}).Normal()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := bpfobj.LoadPipeline()
	if err != nil {
		t.Fatal(err)
	}
	ms := spec.Maps[bpfobj.PipelineMapLbFlows]
	ms.MaxEntries = uint32(bucketsFor(flows))
	m, err := ebpf.NewMap(ms)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return flowMap{m, "bare", o, [secretWords]uint32{1, 2, 3, 4, 5, 6}}
}

// fillTable inserts n random flows of all states, with ages up to the longest idle time, and returns the entries of the table.
func fillTable(t *testing.T, f flowMap, n int) map[flowKey]flowEntry {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 8))
	clock, err := f.options.clock()
	if err != nil {
		t.Fatal(err)
	}
	openTable(t, f.flows, func(table flowTable) {
		for range n {
			k := newFlowKey(uint32(r.IntN(3)), randomClient(r, r.IntN(2) == 0), uint16(r.IntN(100)))
			age := uint32(r.IntN(int(clock.idle[1]) - 2))
			at := uint16((clock.now-age)&maxTicks<<2) | uint16(r.IntN(4))
			table.insert(flowEntry{k, k.hash(f.secret), BackendID(1 + r.IntN(1000)), at}, clock)
		}
	})
	return tableEntries(f)
}

func tableEntries(f flowMap) map[flowKey]flowEntry {
	all := make(map[flowKey]flowEntry)
	_ = f.visit(func(k flowKey, backend BackendID, at uint16) bool {
		all[k] = flowEntry{k, k.hash(f.secret), backend, at}
		return true
	})
	return all
}

// TestMigrateFlows migrates flows to tables of other sizes.
func TestMigrateFlows(t *testing.T) {
	const flows = 50_000
	from := bareTable(t, flows)
	before := fillTable(t, from, flows)
	for _, size := range []int{3 * flows, flows + 10, flows * 3 / 4, flows / 8, 1} {
		to, clock := migrated(t, from, size)
		after, alive, kept := tableEntries(to), 0, clock
		kept.idle = from.options.gcIdle() // closing flows are migrated as long as open ones
		for _, e := range before {
			if !kept.expired(e.time) {
				alive++
			}
		}
		if alive < flows/4 || alive == len(before) {
			t.Fatalf("%d flows of %d", alive, len(before))
		}
		buckets := uint32(bucketsFor(size))
		full, least := make(map[uint32]int), make(map[uint32]uint32)
		for k, e := range after {
			if old, ok := before[k]; !ok || old != e || kept.expired(e.time) {
				t.Fatalf("room for %d: %+v, was %+v, %v", size, e, old, ok)
			}
			n := scaled(e.hash, buckets)
			if worth := clock.worth(e.time); full[n] == 0 || worth < least[n] {
				least[n] = worth
			}
			full[n]++
		}
		lost := 0
		for k, e := range before {
			if _, ok := after[k]; ok || kept.expired(e.time) {
				continue
			}
			lost++
			if n := scaled(e.hash, buckets); full[n] < bucketWays || clock.worth(e.time) > least[n] {
				t.Fatalf("room for %d: lost %+v, in its bucket are %d of which the least is worth %d", size, e, full[n], least[n])
			}
		}
		t.Logf("room for %d: %d flows, %d lost", size, len(after), lost)
		if size >= flows && lost*1000 > alive {
			t.Errorf("room for %d: %d of %d flows lost", size, lost, alive)
		}
	}
}

// migrated migrates flows to a new table, and returns the table and the time. If a tick has passed meanwhile, it starts again,
// because flows may have expired.
func migrated(t *testing.T, from flowMap, size int) (to flowMap, clock flowClock) {
	t.Helper()
	now := func() flowClock {
		clock, err := from.options.clock()
		if err != nil {
			t.Fatal(err)
		}
		return clock
	}
	for {
		clock = now()
		to = bareTable(t, size)
		for range 2 { // the second time changes nothing
			if err := to.migrateFlows(from.flows, false); err != nil {
				t.Fatal(err)
			}
		}
		if now() == clock {
			return to, clock
		}
	}
}

// TestMigrateLate migrates again after the old table has changed, before and while the new programs run.
func TestMigrateLate(t *testing.T) {
	from, to := bareTable(t, 700), bareTable(t, 7000)
	clock, err := from.options.clock()
	if err != nil {
		t.Fatal(err)
	}
	set := func(f flowMap, client string, backend BackendID, state uint32) {
		t.Helper()
		k := newFlowKey(0, netip.MustParseAddrPort(client), 80)
		openTable(t, f.flows, func(table flowTable) {
			table.insert(flowEntry{k, k.hash(f.secret), backend, uint16(clock.now<<2 | state)}, clock)
		})
	}
	has := func(client string, backend BackendID, state string) {
		t.Helper()
		f, ok, err := to.find(0, netip.MustParseAddrPort(client), 80)
		if err != nil || ok != (backend != 0) || f.Backend != backend || f.State != state {
			t.Errorf("%s has %+v, %v, %v, want %d %s", client, f, ok, err, backend, state)
		}
	}
	migrate := func(running bool) {
		t.Helper()
		if err := to.migrateFlows(from.flows, running); err != nil {
			t.Fatal(err)
		}
	}
	const early, late, later = "203.0.113.1:1", "203.0.113.2:2", "203.0.113.3:3"
	set(from, early, 1, 0)
	migrate(false)
	has(early, 1, "new")
	set(from, early, 5, 1) // its backend was deleted, so it has another one
	set(from, late, 2, 1)
	migrate(false)
	has(early, 5, "open")
	has(late, 2, "open")
	set(from, early, 6, 0)
	set(from, later, 3, 0)
	set(to, late, 7, 2) // written by the new programs
	migrate(true)
	has(early, 5, "open")
	has(late, 7, "closing")
	has(later, 3, "new")
	has("203.0.113.4:4", 0, "")
}

// TestMemory wants a flow table for ten million flows to take a gigabyte at most, as documented.
func TestMemory(t *testing.T) {
	size := func(flows int) uint64 {
		return uint64(bucketsFor(flows)) * uint64(unsafe.Sizeof(bpfobj.PipelineLbBucket{}))
	}
	if n := size(10_000_000); n > 1_000_000_000 {
		t.Errorf("ten million flows take %d bytes", n)
	}
	if n := bareTable(t, 100_000).memory(); n != size(100_000) {
		t.Errorf("100,000 flows take %d bytes, not %d", n, size(100_000))
	}
}
