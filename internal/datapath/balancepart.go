// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
)

// balanceStage is the name of the stage.
const balanceStage = "lb"

// balanceVersion is that of balanceState.
const balanceVersion = 1

// balanceState is what the load balancer keeps with the data plane.
type balanceState struct {
	Options BalanceOptions
	// Secret decides where a flow stands in the flow table.
	Secret []uint32
}

// BalancePart is the load balancer's part of the program.
type BalancePart struct {
	options BalanceOptions
	secret  []uint32
	// copied names the maps that get the contents of those before, and are not shared.
	copied []string
	// flowsFrom is the flow table before this one, while its flows are brought over.
	flowsFrom *ebpf.Map
}

// NewBalancePart turns the load balancer on.
func NewBalancePart(o BalanceOptions) *BalancePart { return &BalancePart{options: o} }

// Name implements Part.
func (p *BalancePart) Name() string { return balanceStage }

// Check implements Part.
func (p *BalancePart) Check() error {
	o, err := p.options.Normal()
	if err == nil {
		p.options = *o
	}
	return err
}

// State implements Part.
func (p *BalancePart) State(old *Instance) (State, error) {
	before := old.balanceState()
	if before != nil && len(before.Secret) == balanceSecretWords {
		p.secret = before.Secret
	} else {
		p.secret = newBalanceSecret()
	}
	return State{Version: balanceVersion, Value: balanceState{p.options, p.secret}}, nil
}

func (i *Instance) balanceState() *balanceState {
	return Saved[balanceState](i, balanceStage, balanceVersion)
}

// Balance returns the options of the load balancer, nil if it is off.
func (i *Instance) Balance() *BalanceOptions {
	if s := i.balanceState(); s != nil {
		return &s.Options
	}
	return nil
}

func (i *Instance) balanceSecret() [balanceSecretWords]uint32 {
	return [balanceSecretWords]uint32(i.balanceState().Secret)
}

// Load implements Part.
func (p *BalancePart) Load(l *Loading) error {
	o := &p.options
	l.Resize(map[string]int{
		bpfobj.PipelineMapLbFlows:      balanceBuckets(o.Flows),
		bpfobj.PipelineMapLbVipCache:   1 << balanceFrontBits,
		bpfobj.PipelineMapLbBackends:   o.Members,
		bpfobj.PipelineMapLbTraffic:    o.Members,
		bpfobj.PipelineMapLbHealth:     o.Members,
		bpfobj.PipelineMapLbEvents:     o.VIPs * int(balanceEventCount),
		bpfobj.PipelineMapLbRings:      o.VIPs,
		bpfobj.PipelineMapLbState:      balanceStateChunks,
		bpfobj.PipelineMapLbServers:    o.Members,
		bpfobj.PipelineMapLbFragments:  balanceDatagrams,
		bpfobj.PipelineMapLbNamedVlans: o.VIPs * BalanceMaxVLANs,
		bpfobj.PipelineMapLbVlans:      max(l.PortSlots, 1) * balanceVLANs,
	})
	l.Spec.Maps[bpfobj.PipelineMapLbRings].InnerMap.MaxEntries = balanceLines(o.RingSize)
	return bpfobj.SetVariables(l.Spec, map[string]any{
		bpfobj.PipelineVarLbOn:        true,
		bpfobj.PipelineVarLbRingSize:  uint32(o.RingSize),
		bpfobj.PipelineVarLbBuckets:   uint32(balanceBuckets(o.Flows)),
		bpfobj.PipelineVarLbSeed:      o.Seed,
		bpfobj.PipelineVarLbSecret:    [balanceSecretWords]uint32(p.secret),
		bpfobj.PipelineVarLbIdle:      o.idle(),
		bpfobj.PipelineVarLbUnclaimed: uint8(o.Unclaimed),
	})
}

// Fill implements Part.
func (p *BalancePart) Fill(l *Loading, inst *Instance) error {
	if err := p.copyMaps(l.Old, inst); err != nil {
		return err
	}
	limit := bpfobj.PipelineLimit{Interval: 1e9 / uint64(p.options.InsertRate), Burst: balanceInsertBurst}
	for n := range uint32(2) {
		if err := inst.maps[bpfobj.PipelineMapLbLimits].Put(n, limit); err != nil {
			return fmt.Errorf("writing how fast flows are taken in: %w", err)
		}
	}
	plane := &BalancePlane{inst: inst}
	if err := plane.fillFronts(); err != nil {
		return err
	}
	if _, err := plane.FollowVLANs(); err != nil {
		return err
	}
	if p.options.Fill != nil {
		if err := p.options.Fill(plane); err != nil {
			return err
		}
	}
	return p.Carry(inst, false)
}

// Carry implements Carrier: the flows of a table of another size.
func (p *BalancePart) Carry(inst *Instance, last bool) error {
	if p.flowsFrom == nil {
		return nil
	}
	if last {
		UntilUnused()
	}
	err := inst.carryFlows(p.flowsFrom, last)
	if last {
		p.flowsFrom = nil // without what has failed a few go by the ring
	}
	return err
}

// unreachableRate is how many packets a second are told that nobody takes them: as many errors as Linux sends
// (net.ipv4.icmp_msgs_per_sec).
const unreachableRate = 1_000

// Limits implements Limiter: how often clients are told that packets do not fit, or are for nobody.
func (p *BalancePart) Limits() map[bpfobj.PipelineReason]uint64 {
	return map[bpfobj.PipelineReason]uint64{
		bpfobj.PipelineReasonXMIT_LB_TOO_BIG:     PuntRate,
		bpfobj.PipelineReasonXMIT_LB_UNREACHABLE: unreachableRate,
	}
}

// LimitDomains implements Limiter.
func (p *BalancePart) LimitDomains() int { return 0 }
