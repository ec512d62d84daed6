// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"crypto/rand"
	"encoding/binary"

	"culvert/internal/bpfobj"
)

// balanceStateChunks of 64 KiB hold what user space keeps, twice.
const balanceStateChunks = 1 + 2*balanceStateHalf

// balanceDatagrams is of how many packets in fragments the first one's backend is known at a time: 4 MB.
const balanceDatagrams = 32768

// balanceStateHalf chunks hold it once: 2 MiB.
const balanceStateHalf = 32

// balanceSecretWords is the size of lb_secret in bpf/lb/maps.h.
const balanceSecretWords = 6

func newBalanceSecret() (secret []uint32) {
	var b [4 * balanceSecretWords]byte
	_, _ = rand.Read(b[:]) // ends the program rather than fail
	for n := range balanceSecretWords {
		secret = append(secret, binary.NativeEndian.Uint32(b[4*n:]))
	}
	return secret
}

// balanceBuckets is how many buckets a flow table for so many flows has: half of their places stay free, so that hardly
// any bucket overflows.
func balanceBuckets(flows int) int {
	return (flows + balanceWays/2 - 1) / (balanceWays / 2)
}

// balanceInsertBurst is how far ahead of their rate flows may come, ns; longer than a clock tick.
const balanceInsertBurst = 100_000_000

// BalanceMemory returns how many bytes the flow table takes.
func (i *Instance) BalanceMemory() uint64 {
	m := i.maps[bpfobj.PipelineMapLbFlows]
	if m == nil || i.Balance() == nil {
		return 0
	}
	return uint64(m.ValueSize()) * uint64(m.MaxEntries())
}
