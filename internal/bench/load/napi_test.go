// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"os"
	"testing"

	"culvert/internal/testbed"

	"golang.org/x/sys/unix"
)

// The thread that receives on a veth is bound to its CPU and ends with the XDP program. Without a program ReceiveOn fails.
func TestReceiveOn(t *testing.T) {
	testbed.NeedRoot(t)
	name := fmt.Sprintf("cvn%d", os.Getpid())
	a := testNetns(t)
	source, in := testWire(t, a, testNetns(t), "cvsource", name)
	if err := ReceiveOn(in, LastCPU()); err == nil {
		t.Error("no error without an XDP program")
	}
	sink, err := NewSink(in, SinkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := ReceiveOn(in, LastCPU()); err != nil {
			t.Fatal(err)
		}
	}
	threads, err := NAPIThreads(name)
	if err != nil || len(threads) != 1 {
		t.Fatalf("threads %v, error %v", threads, err)
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(threads[0], &set); err != nil || set.Count() != 1 || !set.IsSet(LastCPU()) {
		t.Errorf("bound to %v, error %v, want CPU %d alone", set, err, LastCPU())
	}
	g, err := NewGenerator(GeneratorOptions{Frames: taggedFrames(1, 64), From: source, CPU: AnotherCPU(LastCPU())})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	sent, err := g.Run(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	if seen := settled(t, sink, 1); seen.Packets == 0 || seen.Packets > sent.Packets {
		t.Errorf("seen %+v of %d", seen, sent.Packets)
	}
	if err := sink.Close(); err != nil {
		t.Error(err)
	}
	if threads, err := NAPIThreads(name); err != nil || len(threads) != 0 {
		t.Errorf("threads %v are left, error %v", threads, err)
	}
}
