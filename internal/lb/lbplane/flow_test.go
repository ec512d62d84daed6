// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netns"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/testbed"
)

// raw runs the program on a frame and returns the frame that leaves. It ignores the counters.
func (b *bed) raw(frame []byte) ([]byte, error) { return b.runProgram(b.inst.Program(), frame) }

func (b *bed) runProgram(prog *ebpf.Program, frame []byte) ([]byte, error) {
	opts := ebpf.RunOptions{
		Data: frame, DataOut: make([]byte, len(frame)+64), Context: bpfobj.XDPMD{DataEnd: uint32(len(frame)), IngressIfindex: uint32(b.in.Index)},
	}
	_, err := prog.Run(&opts)
	return opts.DataOut, err
}

// buckets calls change for each bucket of the flow table, and writes the bucket back.
func (b *bed) buckets(change func(*bpfobj.PipelineLbBucket)) {
	b.t.Helper()
	m := b.inst.Map(bpfobj.PipelineMapLbFlows)
	for n := range m.MaxEntries() {
		var bucket bpfobj.PipelineLbBucket
		b.must(m.Lookup(n, &bucket))
		change(&bucket)
		b.must(m.Put(n, bucket))
	}
}

// age makes all flows older by d, rounded up to whole ticks.
func (b *bed) age(d time.Duration) {
	ticks := uint16((d + Tick - 1) / Tick)
	b.buckets(func(bucket *bpfobj.PipelineLbBucket) {
		for n := range bucket.Time {
			bucket.Time[n] -= ticks << 2
		}
	})
}

func ack() *layers.TCP { return &layers.TCP{ACK: true} }
func syn() *layers.TCP { return &layers.TCP{SYN: true} }

// TestFlowStays changes rings and backends, and checks which backend a flow has.
func TestFlowStays(t *testing.T) {
	for name, move := range map[string]bool{"keep": false, "move": true} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, Options{})
			one, two := b.backend(1, 0, "10.0.0.11"), b.backend(2, 0, "10.0.0.12")
			vip := func(v *VIP) { v.Move = move }
			b.vip(0, vip4, protoTCP, []Backend{one}, vip)
			in := b.packet(client4, vip4, syn(), nil)
			b.expectSent(in, "fwd lb-new", one)
			in = b.packet(client4, vip4, ack(), []byte("data"))
			b.ring(0, []Backend{two}) // weight 0, or another ring
			b.expectSent(in, "fwd lb-flow", one)
			b.vip(0, vip4, protoTCP, nil, vip) // all are drained
			b.expectSent(in, "fwd lb-flow", one)
			b.vip(0, vip4, protoTCP, []Backend{two}, vip)
			one.Down = true
			b.must(b.plane.SetBackend(one))
			moved := func(want uint64) {
				t.Helper()
				if n, err := b.event(0, bpfobj.PipelineLbEventLB_EVENT_MOVED); err != nil || n != want {
					t.Errorf("%d flows were moved, want %d, %v", n, want, err)
				}
			}
			if move {
				b.expectSent(in, "fwd lb-new", two)
				moved(1)
				one.Down = false // the flow does not return
				b.must(b.plane.SetBackend(one))
				b.expectSent(in, "fwd lb-flow", two)
				return
			}
			b.expectSent(in, "fwd lb-flow", one)
			moved(0)
			// Another backend gets the number of its backend.
			other := b.backend(1, 0, "10.0.0.99", func(backend *Backend) { backend.ID = NewBackendID(1, 2) })
			b.expectSent(in, "fwd lb-new", two)
			moved(1)
			b.expectSent(in, "fwd lb-flow", two)
			b.expectSent(b.packet("203.0.113.7:99", vip4, syn(), nil), "fwd lb-new", two)
			// The backend is deleted, but the ring still leads to it.
			two.Used = false
			b.must(b.plane.SetBackend(two))
			b.expectUnchanged(in, "pass lb-empty")
			b.ring(0, []Backend{other})
			b.expectSent(in, "fwd lb-new", other)
			moved(2)
		})
	}
}

// TestFlowExpires wants flows to expire after the idle time of their state, and not before.
func TestFlowExpires(t *testing.T) {
	b := newBed(t, Options{Flows: 70})
	one, two := b.backend(1, 0, "10.0.0.11"), b.backend(2, 0, "10.0.0.12")
	b.vip(0, vip4, protoTCP, []Backend{one})
	b.vip(1, vip4, protoUDP, []Backend{one})
	tcp := func(l *layers.TCP) []byte { return b.packet(client4, vip4, l, nil) }
	udp := b.packet(client4, vip4, &layers.UDP{}, nil)
	for name, c := range map[string]struct {
		packets [][]byte
		idle    time.Duration
	}{
		"new":      {[][]byte{tcp(syn())}, DefaultIdleNew},
		"again":    {[][]byte{tcp(syn()), tcp(syn())}, DefaultIdleNew},
		"open":     {[][]byte{tcp(syn()), tcp(ack())}, DefaultIdleTCP},
		"closing":  {[][]byte{tcp(syn()), tcp(ack()), tcp(ack()), tcp(&layers.TCP{ACK: true, FIN: true})}, DefaultIdleClosing},
		"reset":    {[][]byte{tcp(syn()), tcp(ack()), tcp(&layers.TCP{RST: true})}, DefaultIdleClosing},
		"reopened": {[][]byte{tcp(syn()), tcp(&layers.TCP{RST: true}), tcp(syn()), tcp(ack())}, DefaultIdleTCP},
		"datagram": {[][]byte{udp}, DefaultIdleNew},
		"udp":      {[][]byte{udp, udp}, DefaultIdleUDP},
	} {
		last := c.packets[len(c.packets)-1]
		for _, over := range []bool{false, true} {
			b.buckets(func(bucket *bpfobj.PipelineLbBucket) { *bucket = bpfobj.PipelineLbBucket{} })
			b.ring(0, []Backend{one})
			b.ring(1, []Backend{one})
			for _, p := range c.packets {
				b.sendTo(p, one)
			}
			b.ring(0, []Backend{two})
			b.ring(1, []Backend{two})
			want, to, idle := "fwd lb-flow", one, c.idle-2*Tick
			if over {
				want, to, idle = "fwd lb-new", two, c.idle+2*Tick
			}
			b.age(idle)
			_, out, got := b.run(last)
			if err := checkForwarded(last, out, to); err != nil || got != want {
				t.Fatalf("%s, idle for %v: %q, want %q: %v", name, idle, got, want, err)
			}
			b.expectSent(last, "fwd lb-flow", to)
		}
	}
	if n, err := b.event(0, bpfobj.PipelineLbEventLB_EVENT_MOVED); err != nil || n != 0 {
		t.Errorf("%d flows count as moved, %v", n, err)
	}
}

// sendTo is expectSent for any reason.
func (b *bed) sendTo(frame []byte, backend Backend) {
	b.t.Helper()
	out, err := b.raw(frame)
	b.must(err)
	b.must(checkForwarded(frame, out, backend))
}

// TestSYNFlood wants a flood of SYNs to replace no open flow, however full the table is.
func TestSYNFlood(t *testing.T) {
	b := newBed(t, Options{Flows: 70, InsertRate: 1_000_000_000}) // 10 buckets
	one, two := b.backend(1, 0, "10.0.0.11"), b.backend(2, 0, "10.0.0.12")
	b.vip(0, vip4, protoTCP, []Backend{one})
	var open [][]byte
	for n := range 60 {
		from := fmt.Sprintf("203.0.113.7:%d", 1000+n)
		_, _, reason := b.run(b.packet(from, vip4, syn(), nil))
		frame := b.packet(from, vip4, ack(), nil)
		if b.sendTo(frame, one); reason == "fwd lb-new" {
			open = append(open, frame)
		}
	}
	if len(open) < 50 {
		t.Fatalf("only %d of 60 flows are in the table", len(open))
	}
	b.ring(0, []Backend{two})
	flood := b.packet("198.51.100.1:1", vip4, syn(), nil)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		binary.BigEndian.PutUint32(flood[26:], rng.Uint32()&0x3fffffff|0x40000000)
		binary.BigEndian.PutUint16(flood[34:], uint16(rng.Uint32()))
		flood[24], flood[25] = 0, 0
		binary.BigEndian.PutUint16(flood[24:], ^testbed.OnesSum(flood[14:34]))
		if _, err := b.raw(flood); err != nil {
			t.Fatal(err)
		}
	}
	taken, new := 0, 0
	b.buckets(func(bucket *bpfobj.PipelineLbBucket) {
		for n, tag := range bucket.Tag {
			if tag != 0 {
				taken++
				if bucket.Time[n]&3 == uint16(bpfobj.PipelineLbFlowStateLB_FLOW_NEW) {
					new++
				}
			}
		}
		if bucket.Lock != 0 {
			t.Errorf("a bucket is locked")
		}
	})
	if taken != 140 || new != 140-len(open) {
		t.Errorf("the table has %d flows, %d of them of one packet; want 140 and %d", taken, new, 140-len(open))
	}
	for _, frame := range open {
		b.expectSent(frame, "fwd lb-flow", one)
	}
	// In a table full of open flows there is no room for a SYN. A packet from the middle of a connection may replace a flow that
	// has been idle for a while.
	b.buckets(func(bucket *bpfobj.PipelineLbBucket) {
		for n := range bucket.Time {
			bucket.Time[n] = bucket.Time[n]&^3 | uint16(bpfobj.PipelineLbFlowStateLB_FLOW_OPEN)
		}
	})
	before, err := b.event(0, bpfobj.PipelineLbEventLB_EVENT_UNTRACKED)
	b.must(err)
	b.expectSent(b.packet("192.0.2.77:5", vip4, syn(), nil), "fwd lb-untracked", two)
	b.age(time.Minute)
	b.expectSent(b.packet("192.0.2.77:5", vip4, syn(), nil), "fwd lb-untracked", two)
	b.expectSent(b.packet("192.0.2.77:5", vip4, ack(), nil), "fwd lb-new", two)
	b.expectSent(b.packet("192.0.2.77:5", vip4, ack(), nil), "fwd lb-flow", two)
	if n, err := b.event(0, bpfobj.PipelineLbEventLB_EVENT_UNTRACKED); err != nil || n != before+2 {
		t.Errorf("%d flows were not taken in, want 2, %v", n-before, err)
	}
}

// TestInsertLimit wants new flows to enter the table at a limited rate, with separate limits for SYNs and others.
func TestInsertLimit(t *testing.T) {
	b := newBed(t, Options{})
	one := b.backend(1, 0, "10.0.0.11")
	b.vip(0, vip4, protoTCP, []Backend{one})
	for n := range uint32(2) {
		b.must(b.inst.Map(bpfobj.PipelineMapLbLimits).Put(n, bpfobj.PipelineLimit{Interval: 1e15, Burst: 1}))
	}
	b.expectSent(b.packet("203.0.113.7:1", vip4, syn(), nil), "fwd lb-new", one)
	b.expectSent(b.packet("203.0.113.7:2", vip4, syn(), nil), "fwd lb-untracked", one)
	b.expectSent(b.packet("203.0.113.7:3", vip4, ack(), nil), "fwd lb-new", one)
	b.expectSent(b.packet("203.0.113.7:4", vip4, ack(), nil), "fwd lb-untracked", one)
	// A SYN that is sent again finds its flow above the limit too, whatever the ring says by now.
	two := b.backend(2, 0, "10.0.0.12")
	b.ring(0, []Backend{two})
	b.expectSent(b.packet("203.0.113.7:1", vip4, syn(), nil), "fwd lb-flow", one)
	b.expectSent(b.packet("203.0.113.7:1", vip4, ack(), nil), "fwd lb-flow", one)
	if n, err := b.event(0, bpfobj.PipelineLbEventLB_EVENT_UNTRACKED); err != nil || n != 2 {
		t.Errorf("%d flows were not taken in, want 2, %v", n, err)
	}
}

// TestFlowOnAllCPUs wants a flow to have one backend once it is in the table, on all CPUs and whatever the ring says. It runs
// two programs that share the maps. They have different seeds, so that they assign half of the flows to different backends.
func TestFlowOnAllCPUs(t *testing.T) {
	b := newBed(t, Options{Flows: 100_000, InsertRate: 1_000_000_000})
	one, two := b.backend(1, 0, "10.0.0.11"), b.backend(2, 0, "10.0.0.12")
	b.vip(0, vip4, protoTCP, []Backend{one, two})
	const rounds, flows, cpus = 300, 50, 2
	progs := [cpus]*ebpf.Program{b.inst.Program(), b.otherSeed()}
	var workers [cpus]chan func()
	for n := range workers {
		workers[n] = b.worker()
	}
	mismatches, different := uint64(0), 0
	for round := range rounds {
		var frames [flows][]byte
		for n := range frames {
			from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, byte(round >> 8), byte(round)}), uint16(1+n))
			frames[n] = b.packet(from.String(), vip4, syn(), nil)
		}
		var seen [cpus][flows][4]byte
		var begun atomic.Int32
		var wg sync.WaitGroup
		for cpu, w := range workers {
			wg.Add(1)
			w <- func() {
				defer wg.Done()
				for n, f := range frames {
					// Both threads send the packet at about the same time.
					begun.Add(1)
					for begun.Load() < int32(cpus*(n+1)) {
						runtime.Gosched()
					}
					out, err := b.runProgram(progs[cpu], f)
					if err != nil {
						t.Error(err)
					}
					seen[cpu][n] = [4]byte(out[30:34])
				}
			}
		}
		wg.Wait()
		for n, f := range frames {
			out, err := b.raw(f)
			b.must(err)
			for cpu := range seen {
				if seen[cpu][n] != [4]byte(out[30:34]) {
					mismatches++
				}
			}
			// The program that inserts the flow assigns it by its own seed.
			if out[33] == two.Addr.As4()[3] {
				different++
			}
		}
	}
	if different < rounds*flows/10 || different > rounds*flows*9/10 {
		t.Errorf("%d of %d flows are at the second backend", different, rounds*flows)
	}
	// If a CPU is halted while it holds a bucket, packets of other CPUs are assigned by the ring and counted as untracked.
	untracked, err := b.event(0, bpfobj.PipelineLbEventLB_EVENT_UNTRACKED)
	if b.must(err); mismatches > untracked {
		t.Errorf("%d packets went to another backend than their flow's, %d were untracked", mismatches, untracked)
	}
}

// otherSeed loads the program once more, with the same maps and another seed.
func (b *bed) otherSeed() *ebpf.Program {
	b.t.Helper()
	spec, err := bpfobj.LoadPipeline()
	b.must(err)
	p := NewPart(*OptionsOf(b.inst))
	p.options.Seed = [6]uint32{2, 3, 5, 7, 11, 13}
	_, err = p.State(b.inst)
	b.must(err)
	b.must(p.Load(&datapath.Loading{Spec: spec, PortSlots: int(b.inst.Map(bpfobj.PipelineMapLbVlans).MaxEntries()) / vlanIDs}))
	same := make(map[string]*ebpf.Map)
	names := []string{bpfobj.PipelineMapPorts, bpfobj.PipelineMapLimits, bpfobj.PipelineMapCounters, bpfobj.PipelineMapLbLimits}
	for _, m := range stageMaps {
		names = append(names, m.name)
	}
	for _, name := range names {
		spec.Maps[name].MaxEntries = b.inst.Map(name).MaxEntries()
		same[name] = b.inst.Map(name)
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: same})
	b.must(err)
	b.t.Cleanup(coll.Close)
	return coll.Programs[bpfobj.PipelineProgRx]
}

// worker returns a channel whose functions are called on a thread of its own in the bed's namespace.
func (b *bed) worker() chan func() {
	b.t.Helper()
	here, err := netns.Get()
	b.must(err)
	calls, ready := make(chan func()), make(chan error)
	b.t.Cleanup(func() { close(calls) })
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := netns.Set(here)
		here.Close()
		ready <- err
		for call := range calls {
			call()
		}
	}()
	b.must(<-ready)
	return calls
}

// TestFlowAnew uses a client's port again. The new connection goes to the backend of the old one. If that is down and the flow
// is not in use, a SYN is assigned by the ring.
func TestFlowAnew(t *testing.T) {
	b := newBed(t, Options{})
	one, two := b.backend(1, 0, "10.0.0.11"), b.backend(2, 0, "10.0.0.12")
	b.vip(0, vip4, protoTCP, []Backend{one})
	b.expectSent(b.packet(client4, vip4, syn(), nil), "fwd lb-new", one)
	b.expectSent(b.packet(client4, vip4, ack(), nil), "fwd lb-flow", one)
	b.ring(0, []Backend{two})
	b.expectSent(b.packet(client4, vip4, syn(), nil), "fwd lb-flow", one) // a stray or forged SYN
	b.expectSent(b.packet(client4, vip4, &layers.TCP{FIN: true, ACK: true}, nil), "fwd lb-flow", one)
	b.expectSent(b.packet(client4, vip4, ack(), nil), "fwd lb-flow", one)
	b.expectSent(b.packet(client4, vip4, syn(), nil), "fwd lb-flow", one)
	b.expectSent(b.packet(client4, vip4, ack(), nil), "fwd lb-flow", one)
	one.Down = true
	b.must(b.plane.SetBackend(one))
	b.expectSent(b.packet(client4, vip4, ack(), nil), "fwd lb-flow", one)
	b.age(30 * time.Second)
	b.expectSent(b.packet(client4, vip4, syn(), nil), "fwd lb-new", two)
}

// TestMapped wants packets with IPv4-mapped IPv6 addresses to be left to the kernel.
func TestMapped(t *testing.T) {
	b := newBed(t, Options{})
	b.vip(0, vip4, protoTCP, []Backend{b.backend(1, 0, "10.0.0.11")})
	b.vip(1, vip6, protoTCP, []Backend{b.backend(2, 1, "10.0.0.12")})
	f := b.packet(client6, vip6, syn(), nil)
	mapped := netip.AddrFrom16(netip.MustParseAddrPort(vip4).Addr().As16()).As16()
	to := slices.Clone(f)
	copy(to[14+24:], mapped[:])
	b.expectUnchanged(to, "pass other")
	from := slices.Clone(f)
	copy(from[14+8:], mapped[:])
	b.expectUnchanged(from, "pass other")
	b.expect(f, "fwd lb-new")
}
