// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"crypto/rand"
	"encoding/binary"

	"culvert/internal/datapath"
)

// stateChunks is the number of chunks of 64 KiB in lb_state: a header and two copies of the state.
const stateChunks = 1 + 2*stateHalf

// stateHalf is the number of chunks in one copy of the state: 2 MiB.
const stateHalf = 32

// fragmentedDatagrams is the number of fragmented packets whose backend is kept at a time. They take 4 MB.
const fragmentedDatagrams = 32768

// secretWords is the size of lb_secret in bpf/lb/maps.h.
const secretWords = 6

func newSecret() (secret []uint32) {
	var b [4 * secretWords]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	for n := range secretWords {
		secret = append(secret, binary.NativeEndian.Uint32(b[4*n:]))
	}
	return secret
}

// bucketsFor returns the number of buckets of a table for that many flows. Half of the ways stay free, so that hardly any
// bucket overflows.
func bucketsFor(flows int) int {
	return (flows + bucketWays/2 - 1) / (bucketWays / 2)
}

// insertBurst is the burst of InsertRate in nanoseconds. It must be longer than a tick of the kernel's coarse clock.
const insertBurst = 100_000_000

// Memory returns the size of the flow table in bytes, 0 if the load balancer is off.
func Memory(i *datapath.Instance) uint64 {
	if OptionsOf(i) == nil {
		return 0
	}
	return flowsOf(i).memory()
}
