// SPDX-License-Identifier: Apache-2.0

// Package talkers merges what the programs have counted (bpf/filter/top.h) into a list of the heaviest talkers, with bounds that
// hold for each of them.
package talkers

import (
	"cmp"
	"net/netip"
	"slices"
)

// Key identifies a talker. The zero Key stands for all packets that are not IP, or malformed.
type Key struct {
	IP bool
	// Prefix is an address or a prefix. It is invalid if talkers are ports.
	Prefix netip.Prefix
	// Proto and Port are set if talkers are ports. Port is 0 if the protocol has none.
	Proto uint8
	Port  uint16
}

// Entry is what one CPU has counted for a key in one window.
type Entry struct {
	Key Key
	// Packets counts packets, of which at most Error are of other keys.
	Packets, Error uint64
	// Bytes counts bytes of the key's packets, since it got the entry. These are all of its bytes if Error is 0.
	Bytes uint64
}

// Bucket is a bucket of the table of one CPU in one window.
type Bucket struct {
	// Number is the index of the bucket. A key has the same one on all CPUs and in all windows.
	Number int
	// Bytes counts the bytes of all packets of the bucket.
	Bytes uint64
	// Entries are those in use. Full says that no other entry is free.
	Entries []Entry
	Full    bool
}

// Talker is how much a key has sent, over all CPUs and windows.
type Talker struct {
	Key Key
	// The key has sent at most Packets packets, and at least Packets - Error.
	Packets, Error uint64
	// Bytes is how many bytes the key has sent at least.
	Bytes uint64
}

// Surely returns how many packets the key has sent at least.
func (t Talker) Surely() uint64 { return t.Packets - t.Error }

// Top holds the talkers of all CPUs and windows.
type Top struct {
	// Packets and Bytes are those of all keys together. They are exact.
	Packets, Bytes uint64
	// Missing is how many packets a key that is not among Talkers has sent at most.
	Missing uint64
	// Talkers are sorted by Surely, the largest first.
	Talkers []Talker
}

// Merge adds up the buckets of all CPUs and windows. A key that has no entry in a full bucket has sent at most as many packets there
// as the smallest entry has.
func Merge(buckets []Bucket) Top {
	type sum struct {
		number               int
		surely, above, bytes uint64 // above is by how much the key's entries exceed the smallest ones of their buckets
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

// least returns how many packets a key without an entry has sent at most.
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

// First returns the n heaviest talkers, and how many packets any other key has sent at most.
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
