// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/filterplane"
	"culvert/internal/testbed"
)

// skew is LB_SKEW of bpf/lb/flow.h.
const skew = 16

// gc returns a GC that has taken its first step.
func (b *bed) gc() *GC {
	b.t.Helper()
	g := NewGC(b.inst)
	b.t.Cleanup(g.Close)
	b.must(g.Step())
	if g.prog == nil {
		b.t.Fatal("GC has loaded no program")
	}
	return g
}

// round collects in the whole table, count buckets a slice. It returns the number of entries freed and of slices.
func (g *GC) round(t *testing.T, count uint32) (freed uint64, slices int) {
	t.Helper()
	g.next = 0
	for {
		n, err := g.collect(count)
		if err != nil {
			t.Fatal(err)
		}
		freed += n
		slices++
		if g.next == 0 {
			return freed, slices
		}
	}
}

// steps is round by calls of Step, without the pause between them. It returns the number of calls.
func (g *GC) steps(t *testing.T) (n int) {
	t.Helper()
	g.next = 0
	for {
		g.last = time.Time{}
		if err := g.Step(); err != nil {
			t.Fatal(err)
		}
		n++
		if g.next == 0 {
			return n
		}
	}
}

// fillGC inserts n random flows of all states. Many ages are close to the idle time of the state or beyond it.
func fillGC(t *testing.T, f flowMap, n int) map[flowKey]flowEntry {
	t.Helper()
	r := rand.New(rand.NewPCG(11, 12))
	clock, err := f.options.clock()
	if err != nil {
		t.Fatal(err)
	}
	openTable(t, f.flows, func(table flowTable) {
		for range n {
			k := newFlowKey(uint32(r.IntN(3)), randomClient(r, r.IntN(2) == 0), uint16(r.IntN(100)))
			h, state := k.hash(f.secret), uint16(r.IntN(4))
			idle := uint32(clock.idle[state])
			age := []uint32{0, 1, idle - 1, idle, idle + skew - 1, idle + skew, idle + skew + 1, 2 * idle, 8000, 15000}[r.IntN(10)]
			b := &table.buckets[scaled(h, uint32(len(table.buckets)))]
			if way := slices.Index(b.Tag[:], 0); way >= 0 {
				at := uint16((clock.now-age)&maxTicks<<2) | state
				writeEntry(b, way, flowEntry{k, h, BackendID(1 + r.IntN(1000)), at})
			}
		}
	})
	return tableEntries(f)
}

// dead reports whether an entry with this time is to be freed. Closing flows are freed as late as open ones.
func (c flowClock) dead(at uint16) bool {
	idle := uint32(c.idle[at&3])
	if at&3 == uint16(bpfobj.PipelineLbFlowStateLB_FLOW_CLOSING) {
		idle = max(idle, uint32(c.idle[bpfobj.PipelineLbFlowStateLB_FLOW_OPEN]))
	}
	return c.age(at) >= idle+skew
}

// TestGCFrees collects in tables of several sizes. Dead entries of all states are freed, and no others. The slices do not overlap
// and cover the table.
func TestGCFrees(t *testing.T) {
	for _, tt := range []struct {
		flows, slices int
		count         uint32
	}{
		{1, 1, 1},
		{70, 10, 1},
		{7 * 601, 301, 2},
		{70_000, 589, 17},
		{70_000, 1, 20_000}, // several calls of the program
	} {
		t.Run(fmt.Sprintf("%d in slices of %d", tt.flows, tt.count), func(t *testing.T) {
			b := newBed(t, Options{Flows: tt.flows, IdleUDP: MaxIdle})
			g := b.gc()
			before := fillGC(t, flowsOf(b.inst), tt.flows)
			early, err := OptionsOf(b.inst).clock()
			b.must(err)
			g.next = 0
			first, err := g.collect(tt.count)
			b.must(err)
			var gone uint64
			now := tableEntries(flowsOf(b.inst))
			for k, e := range before {
				if _, ok := now[k]; ok {
					continue
				}
				gone++
				if n := scaled(e.hash, g.buckets); n >= tt.count {
					t.Fatalf("the first slice has freed an entry of bucket %d", n)
				}
			}
			if gone != first {
				t.Errorf("the first slice has freed %d entries, not %d", gone, first)
			}
			freed, slices := g.round(t, tt.count)
			late, err := OptionsOf(b.inst).clock()
			b.must(err)
			if slices != tt.slices {
				t.Errorf("%d slices, want %d", slices, tt.slices)
			}
			after := tableEntries(flowsOf(b.inst))
			if want := uint64(len(before) - len(after)); first+freed != want {
				t.Errorf("GC reports %d freed entries, want %d", first+freed, want)
			}
			seen := make(map[bool]map[uint16]int)
			seen[true], seen[false] = make(map[uint16]int), make(map[uint16]int)
			for k, e := range before {
				is, ok := after[k]
				seen[ok][e.time&3]++
				switch {
				case ok && (is != e || early.dead(e.time)):
					t.Fatalf("kept %+v, was %+v", is, e)
				case !ok && !late.dead(e.time):
					t.Fatalf("freed %+v, of state %d and age %d", e, e.time&3, late.age(e.time))
				}
			}
			if tt.flows > 1000 && (len(seen[true]) != 4 || len(seen[false]) != 4) {
				t.Errorf("not all states were tried: %v", seen)
			}
			b.buckets(func(bucket *bpfobj.PipelineLbBucket) {
				for way, tag := range bucket.Tag {
					e := bucket.Entry[way]
					if bucket.Lock != 0 || e.Seq&1 != 0 || tag == 0 && e.Backend != 0 {
						t.Fatalf("bucket locked %d, entry locked %d, free with backend %x", bucket.Lock, e.Seq, e.Backend)
					}
				}
			})
		})
	}
}

// TestGCBeforeTimesWrap has an expired entry in the table until the times of the table have wrapped. Unless GC has freed the
// entry before, it counts as alive again.
func TestGCBeforeTimesWrap(t *testing.T) {
	const round, over = (maxTicks + 1) * Tick, DefaultIdleTCP + 30*Tick
	for _, collected := range []bool{false, true} {
		b := newBed(t, Options{Flows: 70})
		one, two := b.backend(1, 0, "10.0.0.11"), b.backend(2, 0, "10.0.0.12")
		b.vip(0, vip4, protoTCP, []Backend{one})
		b.expectSent(b.packet(client4, vip4, syn(), nil), "fwd lb-new", one)
		b.expectSent(b.packet(client4, vip4, ack(), nil), "fwd lb-flow", one)
		g := b.gc()
		if n, _ := g.round(t, 3); n != 0 {
			t.Fatalf("%d flows in use were freed", n)
		}
		b.ring(0, []Backend{two})
		b.age(over)
		if collected {
			if n, _ := g.round(t, 3); n != 1 {
				t.Fatalf("%d flows were freed", n)
			}
		}
		b.age(round - over)
		flows, err := b.plane.FlowCounts()
		b.must(err)
		if collected {
			b.expectSent(b.packet(client4, vip4, ack(), nil), "fwd lb-new", two)
		} else {
			b.expectSent(b.packet(client4, vip4, ack(), nil), "fwd lb-flow", one)
		}
		if (flows[one.ID] == 0) != collected {
			t.Errorf("collected %v: flows %v", collected, flows)
		}
	}
}

// TestGCLockedBucket locks a bucket. GC skips it and collects in all others.
func TestGCLockedBucket(t *testing.T) {
	b := newBed(t, Options{Flows: 70})
	g := b.gc()
	old := func(lock uint32) {
		n := 0
		b.buckets(func(bucket *bpfobj.PipelineLbBucket) {
			bucket.Tag[13], bucket.Time[13], bucket.Lock = 1, bucket.Time[13]-8000<<2, 0
			if n++; n == 4 {
				bucket.Lock = lock
			}
		})
	}
	b.buckets(func(bucket *bpfobj.PipelineLbBucket) {
		clock, err := OptionsOf(b.inst).clock()
		b.must(err)
		bucket.Time[13] = uint16(clock.now << 2)
	})
	old(1)
	if n, _ := g.round(t, 1000); n != 9 {
		t.Errorf("%d freed, want 9", n)
	}
	b.buckets(func(bucket *bpfobj.PipelineLbBucket) { bucket.Lock = 0 })
	if n, _ := g.round(t, 1000); n != 1 {
		t.Errorf("%d freed, want the one that was locked", n)
	}
}

// TestGCStep replaces the data plane while GC runs. Steps collect in the current flow table, with the current idle times.
func TestGCStep(t *testing.T) {
	w := newWorld(t, 100, Options{Flows: 5000})
	g := w.gc()
	freed := func(want int) {
		t.Helper()
		before := len(tableEntries(flowsOf(w.inst)))
		n := g.steps(t)
		if got := before - len(tableEntries(flowsOf(w.inst))); got != want || n > gcSlices {
			t.Errorf("%d freed in %d steps, want %d", got, n, want)
		}
	}
	at := g.next
	if w.must(g.Step()); g.next != at {
		t.Error("a step that was not due has collected")
	}
	freed(0)
	// The age of the open flows is below the idle time, but above that of the next data plane.
	w.age(DefaultIdleTCP / 2)
	freed(0)
	prog := g.prog
	w.must(filterplane.Edit(w.inst, func(f *filterplane.Filter) error {
		f.Rules = append(f.Rules, filterplane.Rule{Name: "all", Action: filterplane.Pass})
		return nil
	}))
	if freed(0); g.prog != prog {
		t.Error("GC has loaded its program again after a change of the filter")
	}
	w.attach(func(o *Options) { o.IdleTCP = DefaultIdleTCP / 4 })
	freed(100)
	// The next table has another size and new flows.
	w.attach(func(o *Options) { o.Flows = 9999 })
	for _, c := range w.clients {
		w.send(c, syn())
		w.send(c, ack())
	}
	freed(0)
	w.age(DefaultIdleTCP)
	freed(100)
	w.must(w.inst.DetachAll())
	g.last = time.Time{}
	if w.must(g.Step()); g.prog != nil {
		t.Error("GC has a program for a data plane that is detached")
	}
}

// TestGCUnderLoad collects again and again while packets come in, of known flows that are about to expire and of new flows that
// have expired. Known flows keep their entries, and no flow has two.
func TestGCUnderLoad(t *testing.T) {
	const known, fresh = 500, 1500
	b := newBed(t, Options{Flows: 5000, InsertRate: 1_000_000_000})
	one, two := b.backend(1, 0, "10.0.0.11"), b.backend(2, 0, "10.0.0.12")
	b.vip(0, vip4, protoTCP, []Backend{one})
	var frames [][]byte
	var to []Backend
	for n := range known {
		client := fmt.Sprintf("203.0.113.7:%d", 1000+n)
		b.sendTo(b.packet(client, vip4, syn(), nil), one)
		frames, to = append(frames, b.packet(client, vip4, ack(), nil)), append(to, one)
		b.sendTo(frames[n], one)
	}
	b.ring(0, []Backend{two})
	for n := range fresh {
		frames, to = append(frames, b.packet(fmt.Sprintf("203.0.113.8:%d", 1000+n), vip4, syn(), nil)), append(to, two)
	}
	g := b.gc()
	m := b.inst.Map(bpfobj.PipelineMapLbFlows)
	var freed uint64
	b.runs(frames, 1000, nil, func(int) error {
		clock, err := OptionsOf(b.inst).clock()
		if err != nil {
			return err
		}
		openTable(t, m, func(table flowTable) {
			for n := range table.buckets {
				for way := range table.buckets[n].Time {
					time := &table.buckets[n].Time[way]
					age := uint32(clock.idle[*time&3])
					switch bpfobj.PipelineLbFlowState(*time & 3) {
					case bpfobj.PipelineLbFlowStateLB_FLOW_NEW:
						age += skew + 1
					case bpfobj.PipelineLbFlowStateLB_FLOW_OPEN:
						age -= 8
					}
					*time = uint16((clock.now-age)<<2) | *time&3
				}
			}
		})
		for end := false; !end; end = g.next == 0 {
			n, err := g.collect(100)
			if err != nil {
				return err
			}
			freed += n
		}
		return nil
	}, func(n int, action uint32, out []byte) error {
		if dst := out[30:34]; action != testbed.XDPRedirect || !bytes.Equal(dst, to[n].Addr.AsSlice()) {
			return fmt.Errorf("a packet of flow %d left with %d to %v", n, action, dst)
		}
		return nil
	})
	if freed == 0 {
		t.Error("nothing was freed")
	}
	seen := make(map[flowKey]int)
	b.must(flowsOf(b.inst).visit(func(k flowKey, _ BackendID, _ uint16) bool { seen[k]++; return true }))
	for k, n := range seen {
		if client, _ := k.client(); n > 1 {
			t.Errorf("%d entries of %v", n, client)
		}
	}
	for n := range frames[:known] {
		b.expectSent(frames[n], "fwd lb-flow", one)
	}
	t.Logf("%d entries freed", freed)
}
