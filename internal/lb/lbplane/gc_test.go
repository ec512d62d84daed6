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

// sweeper returns one that has taken its first step.
func (b *bed) gc() *GC {
	b.t.Helper()
	s := NewGC(b.inst)
	b.t.Cleanup(s.Close)
	b.must(s.Step())
	if s.prog == nil {
		b.t.Fatal("it sweeps nothing")
	}
	return s
}

// round sweeps the whole table, and returns how many entries it has freed and in how many slices.
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

// steps is round by Step, whatever the time.
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

// fillGC takes random flows in, of all states and about as old as their time is long, or older.
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

// dead tells whether an entry is to be freed at a time: one that FIN or RST has ended as late as an open one.
func (c flowClock) dead(at uint16) bool {
	idle := uint32(c.idle[at&3])
	if at&3 == uint16(bpfobj.PipelineLbFlowStateLB_FLOW_CLOSING) {
		idle = max(idle, uint32(c.idle[bpfobj.PipelineLbFlowStateLB_FLOW_OPEN]))
	}
	return c.age(at) >= idle+skew
}

// TestGCFrees sweeps tables of several sizes: what is over goes, whatever its state, and nothing else. Each slice
// is of its own part of the table, and all of them are the whole.
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
			s := b.gc()
			before := fillGC(t, flowsOf(b.inst), tt.flows)
			early, err := OptionsOf(b.inst).clock()
			b.must(err)
			s.next = 0
			first, err := s.collect(tt.count)
			b.must(err)
			var gone uint64
			now := tableEntries(flowsOf(b.inst))
			for k, e := range before {
				if _, ok := now[k]; ok {
					continue
				}
				gone++
				if n := scaled(e.hash, s.buckets); n >= tt.count {
					t.Fatalf("the first slice has freed what is in bucket %d", n)
				}
			}
			if gone != first {
				t.Errorf("the first slice has freed %d entries, not %d", gone, first)
			}
			freed, slices := s.round(t, tt.count)
			late, err := OptionsOf(b.inst).clock()
			b.must(err)
			if slices != tt.slices {
				t.Errorf("%d slices, want %d", slices, tt.slices)
			}
			after := tableEntries(flowsOf(b.inst))
			if want := uint64(len(before) - len(after)); first+freed != want {
				t.Errorf("it says that it has freed %d entries, not %d", first+freed, want)
			}
			seen := make(map[bool]map[uint16]int)
			seen[true], seen[false] = make(map[uint16]int), make(map[uint16]int)
			for k, e := range before {
				is, ok := after[k]
				seen[ok][e.time&3]++
				switch {
				case ok && (is != e || early.dead(e.time)):
					t.Fatalf("there is %+v, was %+v", is, e)
				case !ok && !late.dead(e.time):
					t.Fatalf("%+v has gone, of state %d and age %d", e, e.time&3, late.age(e.time))
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

// TestGCBeforeTimesWrap lets a flow's entry lie until the times of the table have gone round. Unless it was swept
// it counts as alive, which is what sweeping is for.
func TestGCBeforeTimesWrap(t *testing.T) {
	const round, over = (maxTicks + 1) * Tick, DefaultIdleTCP + 30*Tick
	for _, swept := range []bool{false, true} {
		b := newBed(t, Options{Flows: 70})
		one, two := b.backend(1, 0, "10.0.0.11"), b.backend(2, 0, "10.0.0.12")
		b.vip(0, vip4, protoTCP, []Backend{one})
		b.sent(b.packet(client4, vip4, syn(), nil), "fwd lb-new", one)
		b.sent(b.packet(client4, vip4, ack(), nil), "fwd lb-flow", one)
		s := b.gc()
		if n, _ := s.round(t, 3); n != 0 {
			t.Fatalf("%d flows in use were freed", n)
		}
		b.ring(0, []Backend{two})
		b.age(over)
		if swept {
			if n, _ := s.round(t, 3); n != 1 {
				t.Fatalf("%d flows were freed", n)
			}
		}
		b.age(round - over)
		flows, err := b.plane.FlowCounts()
		b.must(err)
		if swept {
			b.sent(b.packet(client4, vip4, ack(), nil), "fwd lb-new", two)
		} else {
			b.sent(b.packet(client4, vip4, ack(), nil), "fwd lb-flow", one)
		}
		if (flows[one.ID] == 0) != swept {
			t.Errorf("swept %v: flows %v", swept, flows)
		}
	}
}

// TestGCLockedBucket leaves a bucket alone that another program holds, and goes on.
func TestGCLockedBucket(t *testing.T) {
	b := newBed(t, Options{Flows: 70})
	s := b.gc()
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
	if n, _ := s.round(t, 1000); n != 9 {
		t.Errorf("%d freed, want 9", n)
	}
	b.buckets(func(bucket *bpfobj.PipelineLbBucket) { bucket.Lock = 0 })
	if n, _ := s.round(t, 1000); n != 1 {
		t.Errorf("%d freed, want the one that was locked", n)
	}
}

// TestGCStep goes on with the data plane that is in force, in steps that are not too fast.
func TestGCStep(t *testing.T) {
	w := newWorld(t, 100, Options{Flows: 5000})
	s := w.gc()
	freed := func(want int) {
		t.Helper()
		before := len(tableEntries(flowsOf(w.inst)))
		n := s.steps(t)
		if got := before - len(tableEntries(flowsOf(w.inst))); got != want || n > gcSlices {
			t.Errorf("%d freed in %d steps, want %d", got, n, want)
		}
	}
	at := s.next
	if w.must(s.Step()); s.next != at {
		t.Error("a step that was not due")
	}
	freed(0)
	// The flows are open, and older than the new time is long.
	w.age(DefaultIdleTCP / 2)
	freed(0)
	prog := s.prog
	w.must(filterplane.Edit(w.inst, func(f *filterplane.Filter) error {
		f.Rules = append(f.Rules, filterplane.Rule{Name: "all", Action: filterplane.Pass})
		return nil
	}))
	if freed(0); s.prog != prog {
		t.Error("a filter in front of it makes a difference")
	}
	w.attach(func(o *Options) { o.IdleTCP = DefaultIdleTCP / 4 })
	freed(100)
	// A table of another size, with other flows.
	w.attach(func(o *Options) { o.Flows = 9999 })
	for _, c := range w.clients {
		w.send(c, syn())
		w.send(c, ack())
	}
	freed(0)
	w.age(DefaultIdleTCP)
	freed(100)
	w.must(w.inst.DetachAll())
	s.last = time.Time{}
	if w.must(s.Step()); s.prog != nil {
		t.Error("it sweeps what is not there")
	}
}

// TestGCUnderLoad sweeps over and over while packets of known flows come in, which are about to expire, and new flows
// are taken in, which do: the known ones stay, and each flow has one entry.
func TestGCUnderLoad(t *testing.T) {
	const known, fresh = 500, 1500
	b := newBed(t, Options{Flows: 5000, InsertRate: 1_000_000_000})
	one, two := b.backend(1, 0, "10.0.0.11"), b.backend(2, 0, "10.0.0.12")
	b.vip(0, vip4, protoTCP, []Backend{one})
	var frames [][]byte
	var to []Backend
	for n := range known {
		client := fmt.Sprintf("203.0.113.7:%d", 1000+n)
		b.sentTo(b.packet(client, vip4, syn(), nil), one)
		frames, to = append(frames, b.packet(client, vip4, ack(), nil)), append(to, one)
		b.sentTo(frames[n], one)
	}
	b.ring(0, []Backend{two})
	for n := range fresh {
		frames, to = append(frames, b.packet(fmt.Sprintf("203.0.113.8:%d", 1000+n), vip4, syn(), nil)), append(to, two)
	}
	s := b.gc()
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
		for end := false; !end; end = s.next == 0 {
			n, err := s.collect(100)
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
		b.sent(frames[n], "fwd lb-flow", one)
	}
	t.Logf("%d entries freed", freed)
}
