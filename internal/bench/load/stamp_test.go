// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"culvert/internal/bench/report"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/testbed"
)

// stampMagic is STAMP_MAGIC of bpf/bench/stamp.h.
const stampMagic = 0x43764c

// withStamp writes a stamp into the last bytes of a frame, as bpf/bench/stamp.h describes it.
func withStamp(f []byte, flow, seq uint32, ns uint64) []byte {
	at := f[len(f)-StampLen:]
	sum := scionpkt.Sum(at)
	clear(at)
	binary.BigEndian.PutUint64(at[0:], stampMagic<<40|uint64(flow)<<16)
	binary.BigEndian.PutUint64(at[8:], uint64(seq)<<36|ns&(1<<36-1))
	rest := uint32(sum) + uint32(^scionpkt.Sum(at))
	binary.BigEndian.PutUint16(at[6:], uint16(rest>>16+rest&0xffff))
	return f
}

// now is CLOCK_MONOTONIC.
func now(t *testing.T) uint64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return uint64(ts.Nano())
}

// testSink is a sink at the end of a wire.
func testSink(t *testing.T, o SinkOptions) (from, to End, sink *Sink) {
	t.Helper()
	from, to = testWire(t, testNetns(t), testNetns(t), "cvg0", "cvg1")
	sink, err := NewSink(to, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sink.Close(); err != nil {
			t.Error(err)
		}
	})
	return from, to, sink
}

// patience bounds every wait; a test that passes never comes near it.
const patience = time.Minute

// settled waits until a sink has seen the given number of packets, including those for the stack, and until no more arrive.
func settled(t *testing.T, sink *Sink, arriving uint64) Seen {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		seen, err := sink.Seen()
		if err != nil {
			t.Fatal(err)
		}
		if seen.Packets+seen.Other >= arriving {
			break
		}
	}
	seen, err := sink.Settled(20*time.Millisecond, patience)
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// feed puts a frame through the sink's program and checks its verdict.
func feed(t *testing.T, s *Sink, f []byte, want uint32) {
	t.Helper()
	got, err := s.objs.Sink.Run(&ebpf.RunOptions{Data: f, Repeat: 1})
	if err != nil || got != want {
		t.Fatalf("verdict %d, want %d, error %v", got, want, err)
	}
}

func TestOrderOfEachSequence(t *testing.T) {
	testbed.NeedRoot(t)
	_, _, sink := testSink(t, SinkOptions{Flows: 3})
	const top = 1<<28 - 1
	series := func(from, to uint32) (out []uint32) {
		for i := from; i != to; i++ {
			out = append(out, i&top)
		}
		return out
	}
	tests := []struct {
		name string
		seqs []uint32
		want report.Order
	}{
		{"in order", []uint32{0, 1, 2, 3}, report.Order{Packets: 4}},
		{"from anywhere", []uint32{77, 78}, report.Order{Packets: 2}},
		{"loss", []uint32{5, 7, 10}, report.Order{Packets: 3, Missing: 3}},
		{"duplicates", []uint32{1, 1, 2, 1, 2}, report.Order{Packets: 5, Duplicates: 3}},
		{"two swapped", []uint32{0, 2, 1, 3}, report.Order{Packets: 4, Reordered: 1}},
		// RFC 4737, 3.3: 4 to 6 are smaller than the largest, 7, although they follow each other.
		{"one early", []uint32{1, 2, 3, 7, 4, 5, 6, 8}, report.Order{Packets: 8, Reordered: 3}},
		{"a duplicate of a reordered one", []uint32{0, 2, 1, 1}, report.Order{Packets: 4, Reordered: 1, Duplicates: 1}},
		{"below the first", []uint32{9, 8, 10}, report.Order{Packets: 3, Reordered: 1}},
		{"numbers wrap", []uint32{top - 1, top, 0, 1, 1, top}, report.Order{Packets: 6, Duplicates: 2}},
		{"loss at the wrap", []uint32{top - 1, 2, top}, report.Order{Packets: 3, Missing: 2, Reordered: 1}},
		{
			"as far back as is known", append(series(100, 100+OrderWindow+1), 100, 101),
			report.Order{Packets: OrderWindow + 3, Duplicates: 2},
		},
		{
			"further back", append(series(100, 100+OrderWindow+2), 100),
			report.Order{Packets: OrderWindow + 3, Reordered: 1, Late: 1},
		},
		{
			"gap longer than the window", []uint32{0, 1, 5000, 4999, 4999, 5000},
			report.Order{Packets: 6, Missing: 4997, Reordered: 1, Duplicates: 2},
		},
		{
			"same place in the window, a lap later", []uint32{0, 1024, 1025, 1023},
			report.Order{Packets: 4, Missing: 1022, Reordered: 1},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if err := sink.Reset(); err != nil {
				t.Fatal(err)
			}
			feed(t, sink, withStamp(make([]byte, 60), 0, 4, now(t)), XDPDrop)
			for _, seq := range tc.seqs {
				feed(t, sink, withStamp(make([]byte, 61), 2, seq, now(t)), XDPDrop)
			}
			flows, err := sink.FlowOrders()
			if err != nil {
				t.Fatal(err)
			}
			if flows[2] != tc.want || flows[1] != (report.Order{}) || flows[0] != (report.Order{Packets: 1}) {
				t.Errorf("got %+v, want %+v", flows, tc.want)
			}
			all, err := sink.Order()
			tc.want.Packets++
			if err != nil || all != tc.want {
				t.Errorf("all flows: %+v, error %v", all, err)
			}
		})
	}
}

// A multi-buffer frame has its stamp in one fragment or across two.
func TestSinkReadsStampsInFragments(t *testing.T) {
	testbed.NeedRoot(t)
	_, _, sink := testSink(t, SinkOptions{Flows: 1})
	const first, last = 3000, 9000
	for size := first; size <= last; size++ {
		feed(t, sink, withStamp(make([]byte, size), 0, uint32(size), now(t)), XDPDrop)
	}
	if o, err := sink.Order(); err != nil || o != (report.Order{Packets: last - first + 1}) {
		t.Errorf("%+v, error %v", o, err)
	}
}

func TestSinkLeavesFramesWithoutAStampToTheStack(t *testing.T) {
	testbed.NeedRoot(t)
	_, _, sink := testSink(t, SinkOptions{Flows: 5})
	cut := withStamp(make([]byte, 100), 0, 0, 0)
	for _, f := range [][]byte{make([]byte, 100), make([]byte, 14), cut[:99], withStamp(make([]byte, 60), 5, 0, 0)} {
		feed(t, sink, f, XDPPass)
	}
	seen, err := sink.Seen()
	if err != nil || seen != (Seen{Other: 4}) {
		t.Errorf("seen %+v, error %v", seen, err)
	}
}

// Packets arrive in order over several runs, also if flows have different numbers of frames.
func TestGeneratorStampsInOrder(t *testing.T) {
	testbed.NeedRoot(t)
	for _, tc := range []struct{ frames, flows int }{{1, 1}, {7, 3}, {3000, 0}, {3000, 1}, {3000, 7}} {
		flows := tc.flows
		if flows == 0 {
			flows = tc.frames
		}
		from, to, sink := testSink(t, SinkOptions{Flows: flows})
		frames, err := UDPFrames(tc.frames, 60)
		if err != nil {
			t.Fatal(err)
		}
		frames = Addressed(frames, to.MAC, from.MAC)
		gen, err := NewGenerator(GeneratorOptions{Frames: frames, Stamp: true, Flows: tc.flows, From: from, CPU: LastCPU()})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []uint64{10_007, 5000} {
			if _, err := gen.Run(context.Background(), n); err != nil {
				t.Fatal(err)
			}
		}
		settled(t, sink, 15_007)
		o, err := sink.Order()
		if want := (report.Order{Packets: 15_007}); err != nil || o != want {
			t.Errorf("%+v: %+v, want %+v, error %v", tc, o, want, err)
		}
		h, err := sink.Latency()
		if err != nil || h.Packets() != 15_007 || h.Quantile(0.5) <= 0 || h.Max() < h.Quantile(0.999) {
			t.Errorf("%+v: latency %+v, error %v", tc, h.Report(0, 0), err)
		}
		if err := gen.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Packets of one flow that arrive on several CPUs at the same time are counted exactly once each.
func TestOrderOnSeveralCPUs(t *testing.T) {
	testbed.NeedRoot(t)
	_, _, sink := testSink(t, SinkOptions{Flows: 1})
	const repeat = 200_000
	frame := withStamp(make([]byte, 60), 0, 7, now(t))
	done := make(chan error)
	cpus := []int{LastCPU(), AnotherCPU(LastCPU())}
	for _, cpu := range cpus {
		go func() {
			done <- OnThread(func() error {
				if err := Pin(cpu); err != nil {
					return err
				}
				_, err := sink.objs.Sink.Run(&ebpf.RunOptions{Data: frame, Repeat: repeat})
				return err
			})
		}()
	}
	for range cpus {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	seen, err := sink.Seen()
	if err != nil {
		t.Fatal(err)
	}
	// A test run that a signal interrupts begins again, so there may be more.
	order, err := sink.Order()
	if err != nil || seen.Packets < 2*repeat || order.Packets != seen.Packets || order.Duplicates != seen.Packets-1 {
		t.Errorf("%d packets seen, order %+v, error %v", seen.Packets, order, err)
	}
}

// The kernel makes live frames of at most one page. The error explains that instead of "invalid argument" alone.
func TestGeneratorExplainsTheLongestFrame(t *testing.T) {
	testbed.NeedRoot(t)
	from, _, _ := testSink(t, SinkOptions{})
	gen, err := NewGenerator(GeneratorOptions{Frames: taggedFrames(1, 9000), From: from, CPU: LastCPU()})
	if err != nil {
		t.Fatal(err)
	}
	defer gen.Close()
	if _, err := gen.Run(context.Background(), 1); err == nil || !strings.Contains(err.Error(), "one page") {
		t.Errorf("error %v", err)
	}
}

// disorder is a program that redirects stamped frames of 60 bytes. By the last three bits of the sequence number it drops,
// duplicates or swaps packets.
func disorder(t *testing.T, out int) *ebpf.Program {
	t.Helper()
	const at = 60 - 8 + 3 // the low four bits of the number are the high ones of this byte
	return loadXDP(t, unix.BPF_F_XDP_HAS_FRAGS, asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, mdData, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, mdDataEnd, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 60),
		asm.JGT.Reg(asm.R4, asm.R3, "drop"),
		asm.LoadMem(asm.R5, asm.R2, at, asm.Byte),
		asm.Mov.Reg(asm.R6, asm.R5),
		asm.RSh.Imm(asm.R6, 4),
		asm.And.Imm(asm.R6, 7),
		asm.JEq.Imm(asm.R6, 1, "drop"),
		asm.JEq.Imm(asm.R6, 5, "swap"), // 5 becomes a second 4
		asm.JLT.Imm(asm.R6, 6, "send"), // 6 and 7 take turns
		asm.Xor.Imm(asm.R5, 1<<4).WithSymbol("swap"),
		asm.StoreMem(asm.R2, at, asm.R5, asm.Byte),
		asm.Mov.Imm(asm.R1, int32(out)).WithSymbol("send"),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, XDPDrop).WithSymbol("drop"),
		asm.Return(),
	})
}

func TestDisorderIsFound(t *testing.T) {
	testbed.NeedRoot(t)
	tester, under := testNetns(t), testNetns(t)
	source, in := testWire(t, tester, under, "cvg0", "cvg1")
	to, out := testWire(t, tester, under, "cvg2", "cvg3")
	l, err := in.AttachXDP(disorder(t, out.Index))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const flows, packets = 16, 16 * 8 * 500
	sink, err := NewSink(to, SinkOptions{Flows: flows})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	frames, err := UDPFrames(flows, 60)
	if err != nil {
		t.Fatal(err)
	}
	gen, err := NewGenerator(GeneratorOptions{Frames: frames, Stamp: true, From: source, CPU: LastCPU()})
	if err != nil {
		t.Fatal(err)
	}
	defer gen.Close()
	sent, err := gen.Run(context.Background(), packets)
	if err != nil {
		t.Fatal(err)
	}
	const eighth = packets / 8
	want := report.Order{Packets: 7 * eighth, Missing: 2 * eighth, Duplicates: eighth, Reordered: eighth}
	settled(t, sink, want.Packets)
	got, err := sink.Order()
	if err != nil || Missing(got, sent.Packets) != want || got.Missing != want.Missing {
		t.Errorf("got %+v, want %+v, error %v", got, want, err)
	}
}

func TestGeneratorRefusesFramesWithoutRoomForAStamp(t *testing.T) {
	udp, err := UDPFrames(2, MinUDPFrame+StampLen-1)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []GeneratorOptions{
		{Frames: udp},
		{Frames: [][]byte{make([]byte, 100), make([]byte, MinFrame+StampLen-1)}},
		{Frames: taggedFrames(2, 100), Flows: 3},
		{Frames: taggedFrames(2, 100), Flows: -1},
	} {
		o.Stamp = true
		if _, err := NewGenerator(o); err == nil {
			t.Errorf("frames of %d bytes in %d flows stamped", len(o.Frames[0]), o.Flows)
		}
	}
	if _, err := NewSink(End{}, SinkOptions{Flows: maxFlows + 1}); err == nil {
		t.Error("sink with too many flows made")
	}
}

func TestSinkWithoutFlowsHasNeitherOrderNorLatency(t *testing.T) {
	testbed.NeedRoot(t)
	_, _, sink := testSink(t, SinkOptions{})
	_, orderErr := sink.Order()
	_, latencyErr := sink.Latency()
	if !errors.Is(orderErr, errNoStamps) || !errors.Is(latencyErr, errNoTimes) || !errors.Is(sink.Reset(), errNoStamps) {
		t.Errorf("order: %v, latency: %v", orderErr, latencyErr)
	}
}
