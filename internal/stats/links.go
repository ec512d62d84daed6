// SPDX-License-Identifier: Apache-2.0

// Package stats holds the shapes of what the data plane counts.
package stats

import "math/bits"

// Size classes and traffic types of SCION packets, counted as the reference router counts them so
// that both add up under the same metric names.
const (
	// SizeClasses is the number of size classes. Class 0 holds packets of up to 63 bytes, class i
	// those of 2^(i+5) to 2^(i+6)-1 bytes, and the last one everything above too.
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
	TrafficIn                // from another AS to a host of ours
	TrafficOut               // from a host of ours to another AS
	TrafficInTransit         // from another AS to a sibling router
	TrafficOutTransit        // from a sibling router to another AS
	TrafficBRTransit         // from another AS to another AS through this router alone
)

// PacketsBytes is a pair of counters.
type PacketsBytes struct {
	Packets uint64
	// Bytes counts SCION packets, which is the UDP payload without any underlay header.
	Bytes uint64
}

// LinkCounters is what the fast path has done on one link since it was attached. Packets that it
// passed up to the slow path are not in it: the slow path counts those itself.
type LinkCounters struct {
	// In counts packets that arrived on the link and were forwarded or dropped, by size class.
	In [SizeClasses]PacketsBytes
	// Out counts packets sent on the link, by traffic type and size class.
	Out [TrafficTypes][SizeClasses]PacketsBytes
	// Dropped counts packets that arrived on the link and were dropped as invalid, by size class.
	Dropped [SizeClasses]uint64
	// Limited counts packets that arrived on the link for the slow path and were dropped because
	// their reason had used up its rate, by size class.
	Limited [SizeClasses]uint64
}

// LinkSource gives the counters of all links, indexed as datapath.Config.Links. Values only grow.
type LinkSource interface {
	LinkCounters() ([]LinkCounters, error)
}

// SizeClass returns the class of a SCION packet of n bytes.
func SizeClass(n int) int {
	class := bits.Len32(uint32(n)) - minSizeBits
	return min(max(class, 0), SizeClasses-1)
}
