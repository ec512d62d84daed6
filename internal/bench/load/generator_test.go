// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"testing"
	"time"

	"culvert/internal/testbed"
)

// testPackets is no multiple of the number of frames in any test, nor of the kernel's batch.
const testPackets = 100_003

func TestGeneratorSinkAccountsForEveryPacket(t *testing.T) {
	testbed.NeedRoot(t)
	from, to := testWire(t, testNetns(t), testNetns(t), "cvg0", "cvg1")
	tests := []struct {
		name   string
		frames [][]byte
		header int
	}{
		{"one frame", taggedFrames(1, 138), 0},
		{"more frames than a batch", taggedFrames(777, 138), 0},
		{"several sizes", taggedFrames(600, 60, 1400, 138), 0},
		{"only headers rewritten", taggedFrames(500, 1400, 128), 64},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			sink, err := NewSink(to, SinkOptions{Tags: len(tc.frames), TagOffset: tagAt})
			if err != nil {
				t.Fatal(err)
			}
			defer sink.Close()
			gen, err := NewGenerator(GeneratorOptions{Frames: tc.frames, Header: tc.header, From: from, CPU: LastCPU()})
			if err != nil {
				t.Fatal(err)
			}
			defer gen.Close()
			before, err := from.Stats()
			if err != nil {
				t.Fatal(err)
			}
			// The second run continues with the frame after the last one of the first run.
			var sent Sent
			for _, n := range []uint64{testPackets - 1000, 1000} {
				s, err := gen.Run(context.Background(), n)
				if err != nil {
					t.Fatal(err)
				}
				sent.Packets += s.Packets
				sent.Bytes += s.Bytes
				sent.Elapsed += s.Elapsed
			}
			after, err := from.Stats()
			if err != nil {
				t.Fatal(err)
			}
			lost := after.SendDropped - before.SendDropped
			seen := settled(t, sink, sent.Packets-lost)
			if sent.Packets != testPackets || sent.Packets != seen.Packets+lost {
				t.Errorf("sent %d of %d, received %d, counted losses %d", sent.Packets, testPackets, seen.Packets, lost)
			}
			if sent.Elapsed <= 0 {
				t.Errorf("elapsed %v", sent.Elapsed)
			}
			checkTags(t, sink, tc.frames, sent, seen, lost)
		})
	}
}

// checkTags checks how often each frame arrived: as often as it was sent, but for the packets lost.
func checkTags(t *testing.T, sink *Sink, frames [][]byte, sent Sent, seen Seen, lost uint64) {
	t.Helper()
	tags, err := sink.Tags()
	if err != nil {
		t.Fatal(err)
	}
	var sum, missing, bytes uint64
	n := uint64(len(frames))
	for i, got := range tags {
		want := sent.Packets / n
		if uint64(i) < sent.Packets%n {
			want++
		}
		if got > want {
			t.Errorf("frame %d arrived %d times, was sent %d times", i, got, want)
		}
		missing += want - got
		sum += got
		bytes += want * uint64(len(frames[i]))
	}
	if missing != lost || sum != seen.Packets {
		t.Errorf("%d packets with tags of %d, %d missing, %d lost", sum, seen.Packets, missing, lost)
	}
	if sent.Bytes != bytes || lost == 0 && seen.Bytes != bytes {
		t.Errorf("sent %d bytes, received %d, want %d", sent.Bytes, seen.Bytes, bytes)
	}
}

func TestSinkLeavesShortFramesToTheStack(t *testing.T) {
	testbed.NeedRoot(t)
	from, to := testWire(t, testNetns(t), testNetns(t), "cvg0", "cvg1")
	sink, err := NewSink(to, SinkOptions{MinLen: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	gen, err := NewGenerator(GeneratorOptions{Frames: taggedFrames(4, 99, 100, 101, 60), From: from, CPU: LastCPU()})
	if err != nil {
		t.Fatal(err)
	}
	defer gen.Close()
	if _, err := gen.Run(context.Background(), 4000); err != nil {
		t.Fatal(err)
	}
	seen := settled(t, sink, 4000)
	if want := (Seen{Packets: 2000, Bytes: 1000 * (100 + 101), Other: 2000}); seen != want {
		t.Errorf("seen %+v, want %+v", seen, want)
	}
}

func TestSinkLeavesFramesWithoutTheMarkToTheStack(t *testing.T) {
	testbed.NeedRoot(t)
	from, to := testWire(t, testNetns(t), testNetns(t), "cvg0", "cvg1")
	sink, err := NewSink(to, SinkOptions{MarkOffset: tagAt, Mark: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	frames := taggedFrames(3, 100, 101, 102)
	// This frame ends before the mark does.
	frames[0] = frames[0][:tagAt+3]
	gen, err := NewGenerator(GeneratorOptions{Frames: frames, From: from, CPU: LastCPU()})
	if err != nil {
		t.Fatal(err)
	}
	defer gen.Close()
	if _, err := gen.Run(context.Background(), 3000); err != nil {
		t.Fatal(err)
	}
	seen := settled(t, sink, 3000)
	if want := (Seen{Packets: 1000, Bytes: 1000 * 102, Other: 2000}); seen != want {
		t.Errorf("seen %+v, want %+v", seen, want)
	}
}

func TestGeneratorRefusesBadFrames(t *testing.T) {
	tests := []struct {
		name   string
		frames [][]byte
		header int
	}{
		{"none", nil, 0},
		{"shorter than Ethernet", [][]byte{make([]byte, 13)}, 0},
		{"differ after the header", taggedFrames(2, 138), tagAt},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := NewGenerator(GeneratorOptions{Frames: tc.frames, Header: tc.header}); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestGeneratorEndsWithItsContext(t *testing.T) {
	testbed.NeedRoot(t)
	from, to := testWire(t, testNetns(t), testNetns(t), "cvg0", "cvg1")
	sink, err := NewSink(to, SinkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	gen, err := NewGenerator(GeneratorOptions{Frames: taggedFrames(1, 60), From: from, CPU: LastCPU()})
	if err != nil {
		t.Fatal(err)
	}
	defer gen.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if sent, err := gen.Run(ctx, 1<<40); err != context.Canceled || sent.Packets != 0 {
		t.Errorf("sent %d packets, error %v", sent.Packets, err)
	}
}

// A run that would take days ends when it is interrupted, and returns what it sent. The next run works as usual.
func TestGeneratorIsInterrupted(t *testing.T) {
	testbed.NeedRoot(t)
	from, _, sink := testSink(t, SinkOptions{})
	gen, err := NewGenerator(GeneratorOptions{Frames: taggedFrames(1, 60), From: from, CPU: LastCPU()})
	if err != nil {
		t.Fatal(err)
	}
	defer gen.Close()
	var sum uint64
	for _, pace := range []float64{0, 100_000, 1} {
		gen.Pace(pace)
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		sent, err := gen.Run(ctx, 1<<40)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || sent.Packets == 0 || pace > 1 && sent.Elapsed > patience {
			t.Errorf("at %v a second: %+v, error %v", pace, sent, err)
		}
		gen.Pace(0)
		next, err := gen.Run(context.Background(), 1000)
		if err != nil || next.Packets != 1000 {
			t.Errorf("the next run: %+v, error %v", next, err)
		}
		sum += sent.Packets + next.Packets
	}
	before, err := from.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if seen := settled(t, sink, sum-before.SendDropped); seen.Packets+before.SendDropped != sum {
		t.Errorf("sent %d, seen %+v, %d lost", sum, seen, before.SendDropped)
	}
}

// A veth whose peer does not listen loses frames without counting them. No counter may hide that loss.
func TestUncountedLossIsNoticed(t *testing.T) {
	testbed.NeedRoot(t)
	from, to := testWire(t, testNetns(t), testNetns(t), "cvg0", "cvg1")
	gen, err := NewGenerator(GeneratorOptions{Frames: taggedFrames(1, 60), From: from, CPU: LastCPU()})
	if err != nil {
		t.Fatal(err)
	}
	defer gen.Close()
	sent, err := gen.Run(context.Background(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	fromStats, err := from.Stats()
	if err != nil {
		t.Fatal(err)
	}
	toStats, err := to.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if sent.Packets != 1000 || fromStats.SendDropped+toStats.Received != 0 {
		t.Errorf("sent %d, counted %+v and %+v: the loss has become visible, account for it", sent.Packets, fromStats, toStats)
	}
}

// A veth takes neither a frame longer than its MTU nor those after it in one bulk, as if its queue were full. Each lost
// frame must be counted exactly once.
func TestRefusedFramesAreAccountedFor(t *testing.T) {
	testbed.NeedRoot(t)
	from, to := testWire(t, testNetns(t), testNetns(t), "cvg0", "cvg1")
	sink, err := NewSink(to, SinkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	dev, err := to.Netns.Netlink().LinkByIndex(to.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Netns.Netlink().LinkSetMTU(dev, 1000); err != nil {
		t.Fatal(err)
	}
	frames := taggedFrames(50, 138)
	frames[30] = taggedFrames(1, 1400)[0]
	gen, err := NewGenerator(GeneratorOptions{Frames: frames, From: from, CPU: LastCPU()})
	if err != nil {
		t.Fatal(err)
	}
	defer gen.Close()
	sent, err := gen.Run(context.Background(), testPackets)
	if err != nil {
		t.Fatal(err)
	}
	sender, err := from.Stats()
	if err != nil {
		t.Fatal(err)
	}
	seen := settled(t, sink, sent.Packets-sender.SendDropped)
	receiver, err := to.Stats()
	if err != nil {
		t.Fatal(err)
	}
	lost := sender.SendDropped + receiver.OwnDropped
	if sent.Packets != testPackets || sent.Packets != seen.Packets+lost || lost < testPackets/50 {
		t.Errorf("sent %d, received %d, counted losses %d of at least %d", sent.Packets, seen.Packets, lost, testPackets/50)
	}
}

// A paced generator is never faster than its pace. How much slower it is depends on the machine.
func TestGeneratorKeepsItsPace(t *testing.T) {
	testbed.NeedRoot(t)
	from, to := testWire(t, testNetns(t), testNetns(t), "cvg0", "cvg1")
	sink, err := NewSink(to, SinkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	gen, err := NewGenerator(GeneratorOptions{Frames: taggedFrames(1, 60), From: from, CPU: LastCPU()})
	if err != nil {
		t.Fatal(err)
	}
	defer gen.Close()
	const packets, rate = 20_000, 200_000
	gen.Pace(rate)
	sent, err := gen.Run(context.Background(), packets)
	if err != nil {
		t.Fatal(err)
	}
	// The first packet does not wait, and after a delay a burst of 64 may leave early.
	const least = (packets - 100) * time.Second / rate
	if sent.Packets != packets || sent.Elapsed < least {
		t.Errorf("sent %d in %v, at %d a second it takes at least %v", sent.Packets, sent.Elapsed, rate, least)
	}
	// A pace that was reset has no effect. Other work may make a run as slow as the pace would, but not each of many.
	const few, slow = 1000, 2000
	const leastSlow = (few - 100) * time.Second / slow
	gen.Pace(slow)
	gen.Pace(0)
	fast := leastSlow
	for try := 0; try < 100 && fast >= leastSlow; try++ {
		sent, err := gen.Run(context.Background(), few)
		if err != nil {
			t.Fatal(err)
		}
		fast = sent.Elapsed
	}
	if fast >= leastSlow {
		t.Errorf("%v without a pace, with one it is at least %v", fast, leastSlow)
	}
}

// A call that ends before its first packet has only the time of its end, since the start of the machine. That is no elapsed
// time.
func TestElapsedOfNothing(t *testing.T) {
	for want, p := range map[time.Duration]benchGenProgress{
		0:   {LastNs: 4819e9},
		100: {FirstNs: 4819e9, LastNs: 4819e9 + 100},
	} {
		if got := p.elapsed(); got != want {
			t.Errorf("%+v: %v, want %v", p, got, want)
		}
	}
}
