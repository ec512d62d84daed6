// SPDX-License-Identifier: Apache-2.0

// Package talkers makes a list of the heaviest talkers from what the programs have counted, with bounds that hold
// for each of them. bpf/filter/top.h says how they count.
package talkers

import (
	"cmp"
	"net/netip"
	"slices"
)

// Key is what packets are told apart by. The zero Key is everything that is not IP, or malformed.
type Key struct {
	IP bool
	// Prefix is an address or a prefix; invalid if packets are told apart by port.
	Prefix netip.Prefix
	// Proto and Port are of packets told apart by port. Port is 0 if the protocol has none.
	Proto uint8
	Port  uint16
}

// Entry is what one CPU has counted for a key, in one window.
type Entry struct {
	Key Key
	// Packets are its own and Error of others at most.
	Packets, Error uint64
	// Bytes are of its own packets, not of all if Error is not 0.
	Bytes uint64
}

// Bucket is a part of the table of one CPU, in one window.
type Bucket struct {
	// Number is the same for all CPUs and windows: a key meets the same number everywhere.
	Number int
	// Bytes are of all packets that met the bucket.
	Bytes uint64
	// Entries are those in use; Full says that there is no other.
	Entries []Entry
	Full    bool
}

// Talker is how much a key has sent, over all CPUs and windows.
type Talker struct {
	Key Key
	// Packets is at most what it has sent and Packets - Error at least.
	Packets, Error uint64
	// Bytes is at least what it has sent.
	Bytes uint64
}

// Surely is how many packets it has sent at least.
func (t Talker) Surely() uint64 { return t.Packets - t.Error }

// Top is who has sent how much.
type Top struct {
	// Packets and Bytes are of all, exact.
	Packets, Bytes uint64
	// Missing is how many packets anybody can have sent at most who is not among Talkers.
	Missing uint64
	// Talkers are in the order of what they have surely sent.
	Talkers []Talker
}

// Merge adds up what the buckets of all CPUs and windows know. Without an entry in a bucket a key has sent at most what
// the smallest entry there has.
func Merge(buckets []Bucket) Top {
	type sum struct {
		number               int
		surely, above, bytes uint64 // above is what its entries have beyond the smallest of their buckets
	}
	var top Top
	missing := make(map[int]uint64) // by number of the bucket
	sums := make(map[Key]*sum)
	for _, b := range buckets {
		least := b.least()
		missing[b.Number] += least
		top.Bytes += b.Bytes
		for _, e := range b.Entries {
			top.Packets += e.Packets
			s := sums[e.Key]
			if s == nil {
				s = &sum{number: b.Number}
				sums[e.Key] = s
			}
			s.surely += e.Packets - e.Error
			s.above += e.Packets - least
			s.bytes += e.Bytes
		}
	}
	for _, n := range missing {
		top.Missing = max(top.Missing, n)
	}
	for key, s := range sums {
		most := s.above + missing[s.number]
		top.Talkers = append(top.Talkers, Talker{Key: key, Packets: most, Error: most - s.surely, Bytes: s.bytes})
	}
	slices.SortFunc(top.Talkers, func(a, b Talker) int {
		return cmp.Or(cmp.Compare(b.Surely(), a.Surely()), cmp.Compare(b.Packets, a.Packets), a.Key.compare(b.Key))
	})
	return top
}

// least is what a key without an entry has sent at most.
func (b Bucket) least() uint64 {
	if !b.Full || len(b.Entries) == 0 {
		return 0
	}
	return slices.MinFunc(b.Entries, func(x, y Entry) int { return cmp.Compare(x.Packets, y.Packets) }).Packets
}

func (k Key) compare(o Key) int {
	if k.IP != o.IP {
		if k.IP {
			return 1
		}
		return -1
	}
	return cmp.Or(k.Prefix.Compare(o.Prefix), cmp.Compare(k.Proto, o.Proto), cmp.Compare(k.Port, o.Port))
}

// First returns the n heaviest talkers, and what anybody else can have sent at most.
func (t Top) First(n int) ([]Talker, uint64) {
	if n >= len(t.Talkers) {
		return t.Talkers, t.Missing
	}
	missing := t.Missing
	for _, other := range t.Talkers[n:] {
		missing = max(missing, other.Packets)
	}
	return t.Talkers[:n], missing
}
