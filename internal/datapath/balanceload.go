// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"

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

func (m *meta) balanceSecret() [balanceSecretWords]uint32 {
	return [balanceSecretWords]uint32(m.BalanceSecret)
}

// balanceBuckets is how many buckets a flow table for so many flows has: half of their places stay free, so that hardly
// any bucket overflows.
func balanceBuckets(flows int) int {
	return (flows + balanceWays/2 - 1) / (balanceWays / 2)
}

// setBalance sizes the programs for the load balancer.
func setBalance(spec *ebpf.CollectionSpec, m meta) error {
	o := m.Balance
	if o == nil {
		return nil
	}
	for name, value := range map[string]any{
		bpfobj.PipelineVarLbOn:        true,
		bpfobj.PipelineVarLbRingSize:  uint32(o.RingSize),
		bpfobj.PipelineVarLbBuckets:   uint32(balanceBuckets(o.Flows)),
		bpfobj.PipelineVarLbSeed:      o.Seed,
		bpfobj.PipelineVarLbSecret:    m.balanceSecret(),
		bpfobj.PipelineVarLbIdle:      o.idle(),
		bpfobj.PipelineVarLbUnclaimed: uint8(o.Unclaimed),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	spec.Maps[bpfobj.PipelineMapLbFlows].MaxEntries = uint32(balanceBuckets(o.Flows))
	spec.Maps[bpfobj.PipelineMapLbVipCache].MaxEntries = 1 << balanceFrontBits
	spec.Maps[bpfobj.PipelineMapLbBackends].MaxEntries = uint32(o.Members)
	spec.Maps[bpfobj.PipelineMapLbTraffic].MaxEntries = uint32(o.Members)
	spec.Maps[bpfobj.PipelineMapLbHealth].MaxEntries = uint32(o.Members)
	spec.Maps[bpfobj.PipelineMapLbEvents].MaxEntries = uint32(o.VIPs) * balanceEventCount
	spec.Maps[bpfobj.PipelineMapLbRings].MaxEntries = uint32(o.VIPs)
	spec.Maps[bpfobj.PipelineMapLbRings].InnerMap.MaxEntries = balanceLines(o.RingSize)
	spec.Maps[bpfobj.PipelineMapLbState].MaxEntries = balanceStateChunks
	spec.Maps[bpfobj.PipelineMapLbServers].MaxEntries = uint32(o.Members)
	spec.Maps[bpfobj.PipelineMapLbFragments].MaxEntries = balanceDatagrams
	spec.Maps[bpfobj.PipelineMapLbNamedVlans].MaxEntries = uint32(o.VIPs) * BalanceMaxVLANs
	spec.Maps[bpfobj.PipelineMapLbVlans].MaxEntries = uint32(max(len(m.Ports), 1)) * balanceVLANs
	return nil
}

// openBalance sets limits, and has the load balancer's maps filled.
func (i *Instance) openBalance(o *BalanceOptions) error {
	if o == nil {
		return nil
	}
	limit := bpfobj.PipelineLimit{Interval: 1e9 / uint64(o.InsertRate), Burst: balanceInsertBurst}
	for n := range uint32(2) {
		if err := i.maps[bpfobj.PipelineMapLbLimits].Put(n, limit); err != nil {
			return fmt.Errorf("writing how fast flows are taken in: %w", err)
		}
	}
	plane := &BalancePlane{inst: i}
	if err := plane.fillFronts(); err != nil {
		return err
	}
	if _, err := plane.FollowVLANs(); err != nil {
		return err
	}
	if o.Fill != nil {
		if err := o.Fill(plane); err != nil {
			return err
		}
	}
	return i.carryFlows(false)
}

// balanceInsertBurst is how far ahead of their rate flows may come, ns; longer than a clock tick.
const balanceInsertBurst = 100_000_000

// Balance returns the options of the load balancer, nil if it is off.
func (i *Instance) Balance() *BalanceOptions { return i.meta.Balance }

// BalanceMemory returns how many bytes the flow table takes.
func (i *Instance) BalanceMemory() uint64 {
	m := i.maps[bpfobj.PipelineMapLbFlows]
	if m == nil || i.meta.Balance == nil {
		return 0
	}
	return uint64(m.ValueSize()) * uint64(m.MaxEntries())
}
