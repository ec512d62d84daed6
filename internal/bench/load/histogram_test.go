// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"culvert/internal/testbed"
)

// The bucket of each value holds it and is no wider than 1/64 of it. The buckets cover all values up to 2^36-1 ns.
func TestBuckets(t *testing.T) {
	const last = 1<<36 - 1
	if got, want := bucketOf(last), len(benchSinkDelayCount{}.Packets)-1; got != want {
		t.Errorf("the largest value is in bucket %d of %d", got, want)
	}
	check := func(v uint64) {
		i := bucketOf(v)
		bottom := uint64(0)
		if i > 0 {
			bottom = bucketTop(i-1) + 1
		}
		if v < bottom || v > bucketTop(i) || bucketTop(i)-bottom > bottom/64 {
			t.Fatalf("%d is in bucket %d, %d to %d", v, i, bottom, bucketTop(i))
		}
	}
	for v := range uint64(100_000) {
		check(v)
	}
	for i := range len(benchSinkDelayCount{}.Packets) {
		check(bucketTop(i))
		check(bucketTop(i) + 1)
	}
	for range 100_000 {
		check(rand.Uint64N(last + 1))
	}
}

func TestQuantiles(t *testing.T) {
	h := Histogram{Buckets: make([]uint64, len(benchSinkDelayCount{}.Packets))}
	if h.Quantile(0.5) != 0 || len(h.Report(0, 0).Curve) != 0 {
		t.Errorf("nothing measured: %+v", h.Report(0, 0))
	}
	values := make([]uint64, 100_000)
	for i := range values {
		values[i] = uint64(math.Exp(rand.Float64()*15)) + 50
		h.Buckets[bucketOf(values[i])]++
		h.Longest = max(h.Longest, values[i])
	}
	slices.Sort(values)
	for _, share := range []float64{0, 0.1, 0.5, 0.9, 0.99, 0.999, 0.99999, 1} {
		want := float64(values[max(0, int(math.Ceil(share*float64(len(values))-1e-6))-1)])
		if got := h.Quantile(share); got < want || got > want*(1+1.0/64) {
			t.Errorf("%v of the packets within %v, want %v or 1/64 more", share, got, want)
		}
	}
	r := h.Report(0.5, 1.5)
	if r.Load != 0.5 || r.Offered != 1.5 || r.Packets != 100_000 || r.P50 != h.Quantile(0.5) || r.P999 != h.Quantile(0.999) ||
		r.Max != float64(values[len(values)-1]) {
		t.Errorf("report %+v", r)
	}
	if n := len(r.Curve); n != 5*9+9+1 || r.Curve[n-1].Share != 1 || r.Curve[n-1].Ns != r.Max {
		t.Errorf("%d points, the last %+v", n, r.Curve[n-1])
	}
	for i := 1; i < len(r.Curve); i++ {
		if a, b := r.Curve[i-1], r.Curve[i]; b.Share <= a.Share || b.Ns < a.Ns {
			t.Errorf("point %+v after %+v", b, a)
		}
	}
}

// The program and Histogram agree about buckets, and known delays are measured as long as they were.
func TestLatencyOfKnownDelays(t *testing.T) {
	testbed.NeedRoot(t)
	_, _, sink := testSink(t, SinkOptions{Flows: 1})
	// The time that the test takes adds to the delay.
	const slack = 2e9
	delays := []uint64{0, 5_000_000_000, 20_000_000_000, 30_000_000_000}
	for ns := uint64(1000); ns < 4_000_000_000; ns *= 2 {
		delays = append(delays, ns)
	}
	for i, delay := range delays {
		if err := sink.Reset(); err != nil {
			t.Fatal(err)
		}
		feed(t, sink, withStamp(make([]byte, 60), 0, uint32(i), now(t)-delay), XDPDrop)
		h, err := sink.Latency()
		if err != nil {
			t.Fatal(err)
		}
		got := h.Max()
		if h.Packets() != 1 || got < float64(delay) || got > float64(delay)+slack {
			t.Errorf("%d packets that took %v, want %d", h.Packets(), got, delay)
		}
		if p := h.Quantile(0.5); p != got {
			t.Errorf("half of one packet took %v, the packet %v", p, got)
		}
		if n := h.Buckets[bucketOf(uint64(got))]; n != 1 {
			t.Errorf("%d packets in the bucket of %v", n, got)
		}
	}
	// A stamp from the future, of a CPU whose clock is a little ahead, counts as no delay.
	if err := sink.Reset(); err != nil {
		t.Fatal(err)
	}
	feed(t, sink, withStamp(make([]byte, 60), 0, 0, now(t)+1_000_000_000), XDPDrop)
	if h, err := sink.Latency(); err != nil || h.Packets() != 1 || h.Max() != 0 {
		t.Errorf("%d packets that took %v, error %v", h.Packets(), h.Max(), err)
	}
}
