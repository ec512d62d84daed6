// SPDX-License-Identifier: Apache-2.0

package load

import (
	"sync"
	"testing"

	"culvert/internal/testbed"
)

// Two CPUs send into one wire at the same time. Each frame is received or counted as refused, and none is counted for
// another wire.
func TestRefusalsAreExact(t *testing.T) {
	testbed.NeedRoot(t)
	a, b := testNetns(t), testNetns(t)
	source, far := testWire(t, a, b, "cvsource", "cvsink")
	other, _ := testWire(t, a, b, "cvother", "cvoff")
	sink, err := NewSink(far, SinkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	w, err := WatchRefusals(other, source)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var wait sync.WaitGroup
	var mu sync.Mutex
	var sent uint64
	for _, cpu := range []int{LastCPU(), AnotherCPU(LastCPU())} {
		g, err := NewGenerator(GeneratorOptions{Frames: taggedFrames(1, 64), From: source, CPU: cpu})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		wait.Go(func() {
			s, err := g.Run(t.Context(), 400_000)
			mu.Lock()
			defer mu.Unlock()
			sent += s.Packets
			if err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	refused, err := w.Of(1)
	seen := settled(t, sink, sent-refused)
	if err != nil || seen.Packets+refused != sent {
		t.Errorf("%d of %d received, %d refused: %d are missing; error %v", seen.Packets, sent, refused,
			int64(sent-seen.Packets-refused), err)
	}
	if n, err := w.Of(0); err != nil || n != 0 {
		t.Errorf("%d refused by a wire that nothing was sent to, error %v", n, err)
	}
	// The device's own counter counts no frames besides these.
	if s, err := source.Stats(); err != nil || s.StackDropped != 0 || s.SendDropped > refused {
		t.Errorf("counters %+v, %d refused, error %v", s, refused, err)
	}
}
