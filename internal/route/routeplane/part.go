// SPDX-License-Identifier: Apache-2.0

// Package routeplane is the IP router's part of the data plane: its maps, their sizes and their meaning.
package routeplane

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/route/lpm"
)

// Stage is the name of the stage.
const Stage = "route"

// stateVersion is the version of the part's saved state, which is its Options.
const stateVersion = 1

// Part is the IP router's part of the program.
type Part struct {
	options Options
	// former has the devices of the data plane that is adopted, until FillPort has written them.
	former map[int]bpfobj.PipelineRouteDev
}

// NewPart turns the IP router on.
func NewPart(o Options) *Part { return &Part{options: o} }

// OptionsOf returns the options with which the IP router of a data plane was loaded, nil if it is off.
func OptionsOf(inst *datapath.Instance) *Options {
	return datapath.Saved[Options](inst, Stage, stateVersion)
}

// Name implements datapath.Part.
func (p *Part) Name() string { return Stage }

// Check implements datapath.Part.
func (p *Part) Check() error {
	for _, n := range []int{p.options.Blocks4, p.options.Blocks6} {
		if n < 0 || n > lpm.MaxBlocks {
			return fmt.Errorf("%d blocks for the mirrored table: use 1 to %d, or 0 for the default", n, lpm.MaxBlocks)
		}
	}
	return nil
}

// State implements datapath.Part.
func (p *Part) State(*datapath.Instance) (datapath.State, error) {
	return datapath.State{Version: stateVersion, Value: p.options}, nil
}

// Sizes of the first levels, in map values of 256 entries: 2^24 entries for IPv4 and 2^16 for IPv6.
const (
	roots4 = 1 << 16
	roots6 = 1 << 8
)

// Load implements datapath.Part.
func (p *Part) Load(l *datapath.Loading) error {
	o := p.options
	l.Resize(map[string]int{
		bpfobj.PipelineMapRouteHops:      MaxHops,
		bpfobj.PipelineMapRouteNeighbors: MaxNeighbors,
	})
	buckets := orDefault(o.choices, maxChoices) / choiceWays
	if !o.NoMirror {
		l.Resize(map[string]int{
			bpfobj.PipelineMapRouteRoot4:   roots4,
			bpfobj.PipelineMapRouteRoot6:   roots6,
			bpfobj.PipelineMapRouteBlocks4: orDefault(o.Blocks4, DefaultBlocks4),
			bpfobj.PipelineMapRouteBlocks6: orDefault(o.Blocks6, DefaultBlocks6),
			bpfobj.PipelineMapRouteSlots4:  Slots / 256,
			bpfobj.PipelineMapRouteSlots6:  Slots / 256,
			bpfobj.PipelineMapRouteChoices: buckets,
		})
	}
	return bpfobj.SetVariables(l.Spec, map[string]any{
		bpfobj.PipelineVarRouteOn:       true,
		bpfobj.PipelineVarRouteMirror:   !o.NoMirror,
		bpfobj.PipelineVarRouteTrusting: o.Trusting,

		bpfobj.PipelineVarRouteChoiceMask: uint32(buckets - 1),
		bpfobj.PipelineVarRouteSecret:     newSecret(),
	})
}

// newSecret makes the key of the hash by which flows are known. Programs that share the choices, as those of a capture, have its copy.
func newSecret() (secret [secretWords]uint32) {
	var b [4 * secretWords]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	for n := range secret {
		secret[n] = binary.NativeEndian.Uint32(b[4*n:])
	}
	return secret
}

func orDefault(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// Shared implements datapath.Part. No map is shared with the next program, since a process that starts reads the tables
// anew. What the programs need until then is copied (inherit).
func (p *Part) Shared(*datapath.Loading) []string { return nil }

// Fill implements datapath.Part: it writes the next hops with fixed numbers, and what is inherited.
func (p *Part) Fill(l *datapath.Loading, inst *datapath.Instance) error {
	plane, err := Open(inst)
	if err != nil {
		return err
	}
	defer plane.Close()
	for number, action := range map[uint32]Action{
		HopNone: None, HopLocal: Local, HopUnreachable: Unreachable, HopProhibit: Prohibit, HopBlackhole: Blackhole,
		HopElsewhere: Elsewhere,
	} {
		if err := plane.SetHop(number, Hop{Action: action}); err != nil {
			return err
		}
	}
	return p.inherit(l, inst)
}

// FillPort implements datapath.PortFiller.
func (p *Part) FillPort(_ *datapath.Instance, index int, port bpfobj.PipelinePort) ([]bpfobj.PipelinePort, error) {
	port.Route.Index = uint32(index) // what has been said of the interface stays, when it is attached again
	if former, ok := p.former[index]; ok {
		port.Route = former
		delete(p.former, index)
	}
	return []bpfobj.PipelinePort{port}, nil
}

// Limits implements datapath.Limiter.
func (p *Part) Limits() map[bpfobj.PipelineReason]uint64 {
	return map[bpfobj.PipelineReason]uint64{
		bpfobj.PipelineReasonPUNT_ROUTE_MTU:    datapath.TrafficRate,
		bpfobj.PipelineReasonPUNT_ROUTE_SOURCE: datapath.TrafficRate,
		bpfobj.PipelineReasonPUNT_ROUTE_NONE:   datapath.TrafficRate,
	}
}

// LimitDomains implements datapath.Limiter.
func (p *Part) LimitDomains() int { return 0 }
