// SPDX-License-Identifier: Apache-2.0

package datapath

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

// openTable maps the whole flow table for as long as do takes.
func openTable(t *testing.T, m *ebpf.Map, do func(balanceTable)) {
	t.Helper()
	table, err := openBalanceTable(m, 0, m.MaxEntries(), unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		t.Fatal(err)
	}
	do(table)
	table.close()
}

// TestBalanceFlows lists flows in all their states.
func TestBalanceFlows(t *testing.T) {
	b := newBalanceBed(t, BalanceOptions{Flows: 1000})
	one := b.member(1, 3, "10.0.0.11")
	b.vip(3, "192.0.2.1:80", 6, []BalanceMember{one})
	b.vip(4, "[2001:db8::1]:0", 17, []BalanceMember{one})
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
	list := func() (all []BalanceFlow) {
		t.Helper()
		b.must(b.plane.Flows(func(f BalanceFlow) bool {
			if f.Idle > BalanceTick { // a tick may end meanwhile
				t.Errorf("idle for %v", f.Idle)
			}
			f.Idle = 0
			all = append(all, f)
			return true
		}))
		slices.SortFunc(all, func(a, b BalanceFlow) int { return a.Client.Compare(b.Client) })
		return all
	}
	flow := func(vip uint32, client string, port uint16, state string) BalanceFlow {
		return BalanceFlow{Client: netip.MustParseAddrPort(client), Port: port, VIP: vip, Owner: one.Owner, State: state}
	}
	want := []BalanceFlow{
		flow(3, "203.0.113.1:1000", 80, "new"), flow(3, "203.0.113.2:1000", 80, "open"), flow(3, "203.0.113.3:1000", 80, "closing"),
		flow(4, "[2001:db8:1::1]:53", 443, "udp"),
	}
	if got := list(); !slices.Equal(got, want) {
		t.Fatalf("flows\n%+v, want\n%+v", got, want)
	}
	calls := 0
	b.must(b.plane.Flows(func(BalanceFlow) bool { calls++; return false }))
	if calls != 1 {
		t.Errorf("visited %d flows after the end", calls-1)
	}
	if n, err := b.plane.FlowCounts(); err != nil || len(n) != 1 || n[one.Owner] != 4 {
		t.Errorf("counts %v, %v", n, err)
	}

	// Time goes by: 100 s, which only the flows of one packet and those that end do not outlive.
	m := b.inst.maps[bpfobj.PipelineMapLbFlows]
	each := func(do func(b *bpfobj.PipelineLbBucket, way int)) {
		openTable(t, m, func(table balanceTable) {
			for n := range table.buckets {
				for way, tag := range table.buckets[n].Tag {
					if tag != 0 {
						do(&table.buckets[n], way)
					}
				}
			}
		})
	}
	const ticks = uint16(100 * time.Second / BalanceTick)
	each(func(b *bpfobj.PipelineLbBucket, way int) { b.Time[way] -= ticks << 2 })
	b.must(b.plane.Flows(func(f BalanceFlow) bool {
		if f.Idle < 95*time.Second || f.Expired != (f.State == "new" || f.State == "closing") {
			t.Errorf("after 100 s: %+v", f)
		}
		return true
	}))
	if n, err := b.plane.FlowCounts(); err != nil || n[one.Owner] != 2 {
		t.Errorf("counts %v, %v", n, err)
	}
	// One that is newer than the clock, which was read before it.
	each(func(b *bpfobj.PipelineLbBucket, way int) { b.Time[way] += (ticks + 1) << 2 })
	for _, f := range list() {
		if f.Expired {
			t.Errorf("newer than the clock: %+v", f)
		}
	}
	// While they are written nobody knows what they are.
	each(func(b *bpfobj.PipelineLbBucket, way int) { b.Entry[way].Seq++ })
	if got := list(); len(got) > 0 {
		t.Errorf("being written: %+v", got)
	}
	if f, ok, err := b.plane.FindFlow(3, want[1].Client, 80); ok || err != nil {
		t.Errorf("being written: %+v, %v", f, err)
	}
}

// TestBalanceEvents counts what happens to VIPs.
func TestBalanceEvents(t *testing.T) {
	b := newBalanceBed(t, BalanceOptions{VIPs: 8})
	b.vip(7, "192.0.2.1:80", 6, nil)
	b.vip(6, "192.0.2.2:80", 6, []BalanceMember{b.member(1, 6, "10.0.0.11")})
	for range 3 {
		b.expect(b.packet("203.0.113.7:1234", "192.0.2.1:80", &layers.TCP{SYN: true}, nil), "pass lb-empty")
	}
	b.run(b.packet("203.0.113.7:1234", "192.0.2.2:80", &layers.TCP{SYN: true}, nil))
	check := func(vip uint32, want BalanceEvents) {
		t.Helper()
		if got, err := b.plane.Events(vip); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("events of VIP %d: %v, %v, want %v", vip, got, err, want)
		}
	}
	check(7, BalanceEvents{"empty": 3})
	check(6, BalanceEvents{})
	b.must(b.plane.ClearEvents(6))
	check(7, BalanceEvents{"empty": 3})
	b.must(b.plane.ClearEvents(7))
	check(7, BalanceEvents{})
	if _, err := b.plane.Events(8); err == nil {
		t.Error("events of a VIP that there is no room for")
	}
}

// bareTable is a load balancer without programs: nothing but a flow table.
func bareTable(t *testing.T, flows int) *Instance {
	t.Helper()
	o, err := (&BalanceOptions{Flows: flows}).Normal()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := bpfobj.LoadPipeline()
	if err != nil {
		t.Fatal(err)
	}
	ms := spec.Maps[bpfobj.PipelineMapLbFlows]
	ms.MaxEntries = uint32(balanceBuckets(flows))
	m, err := ebpf.NewMap(ms)
	if err != nil {
		t.Fatal(err)
	}
	i := &Instance{meta: meta{Name: "bare"}, maps: map[string]*ebpf.Map{bpfobj.PipelineMapLbFlows: m}}
	i.saved.Store(balanceStage, &balanceState{*o, []uint32{1, 2, 3, 4, 5, 6}})
	t.Cleanup(i.Close)
	return i
}

// fillTable takes random flows in, of all states and ages up to the longest idle time, and returns them with their times.
func fillTable(t *testing.T, i *Instance, n int) map[balanceKey]balanceEntry {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 8))
	clock, err := i.Balance().clock()
	if err != nil {
		t.Fatal(err)
	}
	openTable(t, i.maps[bpfobj.PipelineMapLbFlows], func(table balanceTable) {
		for range n {
			k := newBalanceKey(uint32(r.IntN(3)), randomClient(r, r.IntN(2) == 0), uint16(r.IntN(100)))
			age := uint32(r.IntN(int(clock.idle[1]) - 2))
			at := uint16((clock.now-age)&balanceTicks<<2) | uint16(r.IntN(4))
			table.insert(balanceEntry{k, k.hash(i.balanceSecret()), BalanceOwner(1 + r.IntN(1000)), at}, clock)
		}
	})
	return tableEntries(i)
}

func tableEntries(i *Instance) map[balanceKey]balanceEntry {
	all := make(map[balanceKey]balanceEntry)
	p := &BalancePlane{inst: i}
	_ = p.visitEntries(func(k balanceKey, owner BalanceOwner, at uint16) bool {
		all[k] = balanceEntry{k, k.hash(i.balanceSecret()), owner, at}
		return true
	})
	return all
}

// TestBalanceCarryFlows brings flows into tables of other sizes.
func TestBalanceCarryFlows(t *testing.T) {
	const flows = 50_000
	from := bareTable(t, flows)
	before := fillTable(t, from, flows)
	for _, size := range []int{3 * flows, flows + 10, flows * 3 / 4, flows / 8, 1} {
		to, clock := carried(t, from, size)
		after, alive, kept := tableEntries(to), 0, clock
		kept.idle = from.Balance().sweepIdle() // what FIN or RST has closed may go on
		for _, e := range before {
			if !kept.expired(e.time) {
				alive++
			}
		}
		if alive < flows/4 || alive == len(before) {
			t.Fatalf("%d flows of %d", alive, len(before))
		}
		buckets := uint32(balanceBuckets(size))
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
			if n := scaled(e.hash, buckets); full[n] < balanceWays || clock.worth(e.time) > least[n] {
				t.Fatalf("room for %d: lost %+v, in its bucket are %d of which the least is worth %d", size, e, full[n], least[n])
			}
		}
		t.Logf("room for %d: %d flows, %d lost", size, len(after), lost)
		if size >= flows && lost*1000 > alive {
			t.Errorf("room for %d: %d of %d flows lost", size, lost, alive)
		}
	}
}

// carried is a table with the flows of another one, and what the time was: a tick meanwhile would end flows, and it is made
// again.
func carried(t *testing.T, from *Instance, size int) (to *Instance, clock balanceClock) {
	t.Helper()
	now := func() balanceClock {
		clock, err := from.Balance().clock()
		if err != nil {
			t.Fatal(err)
		}
		return clock
	}
	for {
		clock = now()
		to = bareTable(t, size)
		for range 2 { // the second time changes nothing
			if err := to.carryFlows(from.maps[bpfobj.PipelineMapLbFlows], false); err != nil {
				t.Fatal(err)
			}
		}
		if now() == clock {
			return to, clock
		}
	}
}

// TestBalanceCarryLate brings in what has come since, before and after the new programs run.
func TestBalanceCarryLate(t *testing.T) {
	from, to := bareTable(t, 700), bareTable(t, 7000)
	clock, err := from.Balance().clock()
	if err != nil {
		t.Fatal(err)
	}
	set := func(i *Instance, client string, owner BalanceOwner, state uint32) {
		t.Helper()
		k := newBalanceKey(0, netip.MustParseAddrPort(client), 80)
		openTable(t, i.maps[bpfobj.PipelineMapLbFlows], func(table balanceTable) {
			table.insert(balanceEntry{k, k.hash(i.balanceSecret()), owner, uint16(clock.now<<2 | state)}, clock)
		})
	}
	has := func(client string, owner BalanceOwner, state string) {
		t.Helper()
		f, ok, err := (&BalancePlane{inst: to}).FindFlow(0, netip.MustParseAddrPort(client), 80)
		if err != nil || ok != (owner != 0) || f.Owner != owner || f.State != state {
			t.Errorf("%s has %+v, %v, %v, want %d %s", client, f, ok, err, owner, state)
		}
	}
	carry := func(running bool) {
		t.Helper()
		if err := to.carryFlows(from.maps[bpfobj.PipelineMapLbFlows], running); err != nil {
			t.Fatal(err)
		}
	}
	const early, late, later = "203.0.113.1:1", "203.0.113.2:2", "203.0.113.3:3"
	set(from, early, 1, 0)
	carry(false)
	has(early, 1, "new")
	set(from, early, 5, 1) // it was given another backend, because its own had gone
	set(from, late, 2, 1)
	carry(false)
	has(early, 5, "open")
	has(late, 2, "open")
	set(from, early, 6, 0)
	set(from, later, 3, 0)
	set(to, late, 7, 2) // by the programs that run now
	carry(true)
	has(early, 5, "open")
	has(late, 7, "closing")
	has(later, 3, "new")
	has("203.0.113.4:4", 0, "")
}

// TestBalanceMemory holds the flow table to what is promised: ten million flows in a gigabyte.
func TestBalanceMemory(t *testing.T) {
	size := func(flows int) uint64 {
		return uint64(balanceBuckets(flows)) * uint64(unsafe.Sizeof(bpfobj.PipelineLbBucket{}))
	}
	if n := size(10_000_000); n > 1_000_000_000 {
		t.Errorf("ten million flows take %d bytes", n)
	}
	i := bareTable(t, 100_000)
	if n := i.BalanceMemory(); n != size(100_000) {
		t.Errorf("100,000 flows take %d bytes, not %d", n, size(100_000))
	}
}
