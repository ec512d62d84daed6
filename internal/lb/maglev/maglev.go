// SPDX-License-Identifier: Apache-2.0

// Package maglev spreads the entries of a table over backends by Maglev hashing (Eisenbud et al., NSDI 2016,
// section 3.4), with weights. The table depends on nothing but its size and the set of keys and weights: every
// machine that is told of the same backends has the same owner at every position.
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

// Backend is one that may own entries.
type Backend struct {
	// Key is what the backend is on every machine, as its address; not its number.
	Key []byte
	// Weight is its share among the sum of all weights. With 0 it owns nothing.
	Weight uint32
}

// ErrNoBackend says that no backend has a weight above 0.
var ErrNoBackend = errors.New("no backend has a weight above 0")

// Table gives the owner of each of size entries, as an index into backends.
//
// Backends of equal weights own numbers of entries that differ by one at most, which is within 1 % of the mean
// while there are at most size/100 of them. Shares of other weights are rounded to the nearest number of entries,
// but not to 0. What that comes to goes to the heaviest or is taken from them: up to an entry for each of the
// others, so less than 1 % of the table while there are at most size/100.
//
// When a backend goes, comes or has another weight, a few entries change that would not have to: at 65,537 entries
// and 1,000 backends about 0.6 % of the table for one of them, 2.4 % for ten at once.
//
// Errors: ErrNoBackend; a size that is no prime, or is less than the number of backends; a key used twice.
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

// walk is the way of a backend through the table: every position once, in an order of its own.
type walk struct {
	order    uint64 // who goes first among those of one weight
	at, skip uint32
	weight   uint32
	backend  int32
	key      []byte
}

// walksOf gives the walks of those with a weight, the heaviest first, in an order that is not the input's.
func walksOf(size uint32, backends []Backend) ([]walk, error) {
	walks := make([]walk, len(backends))
	for i, b := range backends {
		// Any change here gives the entries other owners, and machines of two versions would not agree.
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

// free marks an entry that nobody has taken yet.
const free = -1

// fill lets the backends take entries in turns: each takes the first free one on its walk.
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

func (w *walk) take(table []int32) {
	at, size := w.at, uint32(len(table))
	for table[at] != free {
		// Neither is above 2^31, so nothing wraps.
		if at += w.skip; at >= size {
			at -= size
		}
	}
	table[at], w.at = w.backend, at
}
