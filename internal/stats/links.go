// SPDX-License-Identifier: Apache-2.0

// Package stats holds the types of the data plane's counters and serves them as Prometheus metrics.
package stats

import "math/bits"

// Size classes and traffic types of SCION packets. They are those of the reference router, so that the counters of both add
// up under the same metric names.
const (
	// SizeClasses is the number of size classes. Class 0 holds packets of up to 63 bytes, class i
	// those of 2^(i+5) to 2^(i+6)-1 bytes. The last one also holds all longer packets.
	SizeClasses = 9
	// TrafficTypes is the number of traffic types.
	TrafficTypes = 6
	// minSizeBits is the number of bits of the largest size in class 0.
	minSizeBits = 6
)

// Traffic types index LinkCounters.Out. The values are shared with enum traffic_type in the eBPF
// programs.
const (
	TrafficOther      = iota // everything without a type of its own
	TrafficIn                // from another AS to a host of this AS
	TrafficOut               // from a host of this AS to another AS
	TrafficInTransit         // from another AS to a sibling router
	TrafficOutTransit        // from a sibling router to another AS
	TrafficBRTransit         // from another AS to another AS through this router alone
)

// PacketsBytes is a pair of counters.
type PacketsBytes struct {
	Packets uint64
	// Bytes counts the bytes of SCION packets: the UDP payload without any underlay header.
	Bytes uint64
}

// LinkCounters are the counters of the fast path on one link since it was attached. They leave out
// packets that it passed to the slow path, which counts those itself.
type LinkCounters struct {
	// In counts packets that arrived on the link and were forwarded or dropped, by size class.
	In [SizeClasses]PacketsBytes
	// Out counts packets sent on the link, by traffic type and size class.
	Out [TrafficTypes][SizeClasses]PacketsBytes
	// Dropped counts packets that arrived on the link and were dropped as invalid, by size class.
	Dropped [SizeClasses]uint64
	// Limited counts packets that arrived on the link, were meant for the slow path and were dropped
	// because their reason had used up its rate, by size class.
	Limited [SizeClasses]uint64
}

// LinkSource has the counters of all links, indexed as scionplane.Config.Links. Values only grow.
type LinkSource interface {
	LinkCounters() ([]LinkCounters, error)
}

// SizeClass returns the class of a SCION packet of n bytes.
func SizeClass(n int) int {
	class := bits.Len32(uint32(n)) - minSizeBits
	return min(max(class, 0), SizeClasses-1)
}
