// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"crypto/rand"
	"encoding/binary"

	"culvert/internal/datapath"
)

// stateChunks of 64 KiB hold what user space keeps, twice.
const stateChunks = 1 + 2*stateHalf

// fragmentedDatagrams is of how many packets in fragments the first one's backend is known at a time: 4 MB.
const fragmentedDatagrams = 32768

// stateHalf chunks hold it once: 2 MiB.
const stateHalf = 32

// secretWords is the size of lb_secret in bpf/lb/maps.h.
const secretWords = 6

func newSecret() (secret []uint32) {
	var b [4 * secretWords]byte
	_, _ = rand.Read(b[:]) // ends the program rather than fail
	for n := range secretWords {
		secret = append(secret, binary.NativeEndian.Uint32(b[4*n:]))
	}
	return secret
}

// bucketsFor is how many buckets a flow table for so many flows has: half of their places stay free, so that hardly
// any bucket overflows.
func bucketsFor(flows int) int {
	return (flows + bucketWays/2 - 1) / (bucketWays / 2)
}

// insertBurst is how far ahead of their rate flows may come, ns; longer than a clock tick.
const insertBurst = 100_000_000

// Memory returns how many bytes the flow table takes.
func Memory(i *datapath.Instance) uint64 {
	if OptionsOf(i) == nil {
		return 0
	}
	return flowsOf(i).memory()
}
