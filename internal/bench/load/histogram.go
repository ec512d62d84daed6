// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"culvert/internal/bench/report"
)

// Histogram counts packets by their latency. Below 128 ns each nanosecond has a bucket. Above that there are 64 buckets for
// each power of two, so a quantile is too large by at most 1/64.
type Histogram struct {
	// Buckets has the number of packets in each bucket.
	Buckets []uint64
	// Longest is the longest latency, in nanoseconds.
	Longest uint64
}

// delayBits is DELAY_BITS of bpf/bench/delay.h.
const delayBits = 6

// bucketOf is the bucket of a latency, as delay_bucket of bpf/bench/delay.h computes it.
func bucketOf(ns uint64) int {
	shift := bits.Len64(ns >> delayBits)
	if shift < 2 {
		return int(ns)
	}
	return (shift-1)<<delayBits + int(ns>>(shift-1))
}

// bucketTop is the largest value, in nanoseconds, that falls into a bucket.
func bucketTop(i int) uint64 {
	if i < 2<<delayBits {
		return uint64(i)
	}
	shift := i>>delayBits - 1
	return uint64(i-shift<<delayBits+1)<<shift - 1
}

// Latency reads the latencies from the generator to the sink, since the sink was attached or Reset. The generator reads the
// clock when it makes a packet, so the time that a packet waits for the rest of its batch counts too (see Generator.Pace).
func (s *Sink) Latency() (Histogram, error) {
	if !s.timed {
		return Histogram{}, errNoTimes
	}
	var perCPU []benchSinkDelayCount
	if err := s.objs.Delays.Lookup(uint32(0), &perCPU); err != nil {
		return Histogram{}, fmt.Errorf("read the delays of the sink: %w", err)
	}
	h := Histogram{Buckets: make([]uint64, len(benchSinkDelayCount{}.Packets))}
	for _, c := range perCPU {
		h.Longest = max(h.Longest, c.Longest)
		for i, n := range c.Packets {
			h.Buckets[i] += n
		}
	}
	return h, nil
}

// errNoTimes is the error for reading latencies from a sink that does not read times.
var errNoTimes = errors.New("the sink does not read times from stamps: set SinkOptions.Flows and not Untimed")

// Packets is the number of packets in all buckets.
func (h Histogram) Packets() uint64 {
	sum := uint64(0)
	for _, n := range h.Buckets {
		sum += n
	}
	return sum
}

// Max is the longest latency, in nanoseconds. It is exact.
func (h Histogram) Max() float64 { return float64(h.Longest) }

// Quantile is the shortest time, in nanoseconds, within which at least the given share of the packets arrived. share is 0 to
// 1. Without packets Quantile is 0.
func (h Histogram) Quantile(share float64) float64 {
	need := share * float64(h.Packets())
	var below uint64
	for i, n := range h.Buckets {
		below += n
		if n > 0 && float64(below) >= need {
			return float64(min(bucketTop(i), h.Longest))
		}
	}
	return h.Max()
}

// Report sums the histogram up. offered is the rate at which packets were sent, in millions a second. load is that rate as a
// share of the highest rate without loss.
func (h Histogram) Report(load, offered float64) report.Latency {
	return report.Latency{
		Load:    load,
		Offered: offered,
		Packets: h.Packets(),
		P50:     h.Quantile(0.5),
		P90:     h.Quantile(0.9),
		P99:     h.Quantile(0.99),
		P999:    h.Quantile(0.999),
		Max:     h.Max(),
		Curve:   h.curve(),
	}
}

// curve has points at 0, 10 ... 80, 90, 91 ... 98, 99, 99.1 % and so on, as far as there are packets beyond them, and a last
// one at 100 %.
func (h Histogram) curve() []report.Point {
	const perNine = 10
	if h.Packets() == 0 {
		return nil
	}
	var points []report.Point
	for rest := 1.0; rest*float64(h.Packets()) >= 1; rest /= perNine {
		for i := range perNine - 1 {
			share := 1 - rest + rest*float64(i)/perNine
			points = append(points, report.Point{Share: share, Ns: h.Quantile(share)})
		}
	}
	return append(points, report.Point{Share: 1, Ns: h.Max()})
}

// Add adds the packets of another histogram.
func (h *Histogram) Add(other Histogram) {
	if h.Buckets == nil {
		h.Buckets = slices.Clone(other.Buckets)
	} else {
		for i, n := range other.Buckets {
			h.Buckets[i] += n
		}
	}
	h.Longest = max(h.Longest, other.Longest)
}
