// SPDX-License-Identifier: Apache-2.0

// Package maglev assigns the entries of a table to backends by Maglev hashing (Eisenbud et al., NSDI 2016,
// section 3.4), with weights. The table depends only on its size and the set of keys and weights, so machines with
// the same backends have equal tables.
package maglev

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Backend is a backend to which entries may be assigned.
type Backend struct {
	// Key identifies the backend on every machine. It is its address, for example, and not a local number.
	Key []byte
	// Weight is its share of the sum of all weights. A backend of weight 0 gets no entries.
	Weight uint32
}

// ErrNoBackend is the error of a table without a backend of a weight above 0.
var ErrNoBackend = errors.New("no backend has a weight above 0")

// Table returns the backend of each of size entries, as an index into backends.
//
// The numbers of entries of backends with equal weights differ by one at most, which is within 1 % of the mean for
// up to size/100 backends. Shares of other weights are rounded to the nearest number of entries, but not to 0. The
// heaviest backends get the difference, or give it: up to one entry for each of the others, so less than 1 % of the
// table for up to size/100 backends.
//
// When a backend is added or removed or its weight changes, a few more entries change than necessary: with 65,537
// entries and 1,000 backends about 0.6 % of the table for one backend, 2.4 % for ten at once.
//
// The error is ErrNoBackend without backends, or it describes a size that is not prime or less than the number of
// backends, or a key that occurs twice.
func Table(size int, backends []Backend) ([]int32, error) {
	if size > math.MaxInt32 || !Prime(size) {
		return nil, fmt.Errorf("a table of %d entries: the size has to be a prime below 2^31: use %d",
			size, nextPrime(min(size, math.MaxInt32)))
	}
	walks, err := walksOf(uint32(size), backends)
	if err != nil {
		return nil, err
	}
	if len(walks) == 0 {
		return nil, ErrNoBackend
	}
	if len(walks) > size {
		return nil, fmt.Errorf("a table of %d entries is too small for %d backends: use %d, which is the first prime "+
			"with 100 for each", size, len(walks), nextPrime(100*len(walks)))
	}
	return fill(size, walks), nil
}

// walk is a backend's permutation of the table's positions: it starts at at and goes on in steps of skip.
type walk struct {
	order    uint64 // position in the order of backends of one weight
	at, skip uint32
	weight   uint32
	backend  int32
	key      []byte
}

// walksOf returns the walks of the backends with a weight, the heaviest first. Their order does not depend on that of
// backends.
func walksOf(size uint32, backends []Backend) ([]walk, error) {
	walks := make([]walk, len(backends))
	for i, b := range backends {
		// Any change here changes tables, and machines with different versions would no longer agree.
		sum := sha256.Sum256(b.Key)
		walks[i] = walk{
			at:      uint32(binary.BigEndian.Uint64(sum[0:]) % uint64(size)),
			skip:    uint32(binary.BigEndian.Uint64(sum[8:])%uint64(size-1)) + 1,
			order:   binary.BigEndian.Uint64(sum[16:]),
			weight:  b.Weight,
			backend: int32(i),
			key:     b.Key,
		}
	}
	slices.SortFunc(walks, func(a, b walk) int { return cmp.Or(cmp.Compare(a.order, b.order), bytes.Compare(a.key, b.key)) })
	for i := 1; i < len(walks); i++ {
		if a, b := walks[i-1], walks[i]; bytes.Equal(a.key, b.key) {
			return nil, fmt.Errorf("backends %d and %d have the same key %x: name each once",
				min(a.backend, b.backend), max(a.backend, b.backend), a.key)
		}
	}
	slices.SortStableFunc(walks, func(a, b walk) int { return cmp.Compare(b.weight, a.weight) })
	return slices.DeleteFunc(walks, func(w walk) bool { return w.weight == 0 }), nil
}

// free marks an entry that is not assigned yet.
const free = -1

// fill makes the backends take entries in turns. In each turn a backend takes the next free entry of its walk.
func fill(size int, walks []walk) []int32 {
	table := make([]int32, size)
	for i := range table {
		table[i] = free
	}
	queue := queueOf(walks)
	for left := size; left > 0; queue.advance() {
		class := queue[0].walks
		for i := range class[:min(left, len(class))] {
			class[i].take(table)
		}
		left -= len(class)
	}
	return table
}

// take assigns the next free entry of the walk to its backend.
func (w *walk) take(table []int32) {
	at, size := w.at, uint32(len(table))
	for table[at] != free {
		// Both numbers are below 2^31, so the sum does not wrap.
		if at += w.skip; at >= size {
			at -= size
		}
	}
	table[at], w.at = w.backend, at
}
