// SPDX-License-Identifier: Apache-2.0

// Package lbplane is the load balancer's part of the data plane: its maps, their sizes and their meaning.
package lbplane

import (
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// Stage is the name of the stage.
const Stage = "lb"

// stateVersion is the version of savedState, and of the state that SetState stores. It changes with their JSON keys:
// a load balancer of another version is not adopted.
const stateVersion = 2

// savedState is what the load balancer stores with the data plane for later processes.
type savedState struct {
	Options Options
	// Secret is the key of the hash that places flows in the flow table.
	Secret []uint32
}

// Part is the load balancer as a part of a program that is being loaded.
type Part struct {
	options Options
	secret  []uint32
	// fixed is the secret of a part that is to have a certain one, nil otherwise.
	fixed []uint32
	// copied has the names of maps that are not shared with the program before but get their contents from it.
	copied []string
	// flowsFrom is the flow table of the program before, until its flows are migrated; nil if there is none to migrate.
	flowsFrom *ebpf.Map
}

// NewPart returns a part that turns the load balancer on.
func NewPart(o Options) *Part { return &Part{options: o} }

// WithSecret gives the part the key of the hash that places flows in the flow table, and from which outer headers are spread. It is
// for tests that compare two data planes. Anybody who knows the key can fill a bucket of the table.
func (p *Part) WithSecret(secret [secretWords]uint32) *Part {
	p.fixed = secret[:]
	return p
}

// Name implements datapath.Part.
func (p *Part) Name() string { return Stage }

// Check implements datapath.Part.
func (p *Part) Check() error {
	o, err := p.options.Normal()
	if err == nil {
		p.options = *o
	}
	return err
}

// State implements datapath.Part.
func (p *Part) State(old *datapath.Instance) (datapath.State, error) {
	before := stateOf(old)
	switch {
	case p.fixed != nil:
		p.secret = p.fixed
	case before != nil && len(before.Secret) == secretWords:
		p.secret = before.Secret
	default:
		p.secret = newSecret()
	}
	return datapath.State{Version: stateVersion, Value: savedState{p.options, p.secret}}, nil
}

func stateOf(i *datapath.Instance) *savedState {
	return datapath.Saved[savedState](i, Stage, stateVersion)
}

// OptionsOf returns the options that the load balancer of a data plane was loaded with, nil if it is off.
func OptionsOf(i *datapath.Instance) *Options {
	if s := stateOf(i); s != nil {
		return &s.Options
	}
	return nil
}

func secretOf(i *datapath.Instance) [secretWords]uint32 {
	return [secretWords]uint32(stateOf(i).Secret)
}

// Load implements datapath.Part.
func (p *Part) Load(l *datapath.Loading) error {
	o := &p.options
	l.Resize(map[string]int{
		bpfobj.PipelineMapLbFlows:      bucketsFor(o.Flows),
		bpfobj.PipelineMapLbVipCache:   1 << vipCacheBits,
		bpfobj.PipelineMapLbBackends:   o.Backends,
		bpfobj.PipelineMapLbTraffic:    o.Backends,
		bpfobj.PipelineMapLbHealth:     o.Backends,
		bpfobj.PipelineMapLbEvents:     o.VIPs * int(eventCount),
		bpfobj.PipelineMapLbRings:      o.VIPs,
		bpfobj.PipelineMapLbState:      stateChunks,
		bpfobj.PipelineMapLbServers:    o.Backends,
		bpfobj.PipelineMapLbFragments:  fragmentedDatagrams,
		bpfobj.PipelineMapLbNamedVlans: o.VIPs * MaxVLANs,
		bpfobj.PipelineMapLbVlans:      max(l.PortSlots, 1) * vlanIDs,
	})
	l.Spec.Maps[bpfobj.PipelineMapLbRings].InnerMap.MaxEntries = ringLines(o.RingSize)
	return bpfobj.SetVariables(l.Spec, map[string]any{
		bpfobj.PipelineVarLbOn:        true,
		bpfobj.PipelineVarLbRingSize:  uint32(o.RingSize),
		bpfobj.PipelineVarLbBuckets:   uint32(bucketsFor(o.Flows)),
		bpfobj.PipelineVarLbSeed:      o.Seed,
		bpfobj.PipelineVarLbSecret:    [secretWords]uint32(p.secret),
		bpfobj.PipelineVarLbIdle:      o.idle(),
		bpfobj.PipelineVarLbUnclaimed: uint8(o.Unclaimed),
	})
}

// Fill implements datapath.Part.
func (p *Part) Fill(l *datapath.Loading, inst *datapath.Instance) error {
	if err := p.copyMaps(l.Old, inst); err != nil {
		return err
	}
	limit := bpfobj.PipelineLimit{Interval: 1e9 / uint64(p.options.InsertRate), Burst: insertBurst}
	for n := range uint32(2) {
		if err := inst.Map(bpfobj.PipelineMapLbLimits).Put(n, limit); err != nil {
			return fmt.Errorf("writing the rate of new flows: %w", err)
		}
	}
	plane := &Plane{inst: inst}
	if err := plane.fillVIPCache(); err != nil {
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
	return p.Adopt(inst, false)
}

// Adopt implements datapath.Adopter. It migrates the flows of a flow table of another size.
func (p *Part) Adopt(inst *datapath.Instance, last bool) error {
	if p.flowsFrom == nil {
		return nil
	}
	if last {
		datapath.WaitForRCU()
	}
	err := flowsOf(inst).migrateFlows(p.flowsFrom, last)
	if last {
		p.flowsFrom = nil // not tried again after an error: flows that are missing are assigned by the ring
	}
	return err
}

// unreachableRate is the rate of ICMP errors for unclaimed packets, as in Linux (net.ipv4.icmp_msgs_per_sec).
const unreachableRate = 1_000

// Limits implements datapath.Limiter: the rates, a second, of ICMP errors for packets that do not fit or are unclaimed.
func (p *Part) Limits() map[bpfobj.PipelineReason]uint64 {
	return map[bpfobj.PipelineReason]uint64{
		bpfobj.PipelineReasonXMIT_LB_TOO_BIG:     datapath.PuntRate,
		bpfobj.PipelineReasonXMIT_LB_UNREACHABLE: unreachableRate,
	}
}

// LimitDomains implements datapath.Limiter.
func (p *Part) LimitDomains() int { return 0 }
