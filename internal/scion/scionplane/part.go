// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"reflect"
	"slices"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// Stage is the name of the stage.
const Stage = "scion"

// stateVersion is the version of the format of state.
const stateVersion = 1

// state is what the SCION router saves with the data plane.
type state struct {
	Config Config
	// Counters has the slot of each link's counters by the link's name. A slot keeps its link as long as the data plane
	// lives.
	Counters map[string]int
	// Discriminators is Part.Discriminators.
	Discriminators []uint32 `json:",omitempty"`
}

// Part is the SCION router's part of the program.
type Part struct {
	Config Config
	// SkipMAC leaves out the verification of hop fields. No configuration sets it: benchmarks use it to measure the cost
	// of the verification.
	SkipMAC bool
	// Discriminators has the local discriminator of each link's BFD session, in the order of Config.Links, 0 for a link that has
	// none. They are saved for the next process, whatever its keys are. nil leaves those that the data plane has.
	Discriminators []uint32

	state state
	// unattended is set if no process serves the data plane.
	unattended bool
	// formerKey is the ID of the key that the slow path of an earlier process had, 0 for none.
	formerKey uint64
	// accept has the rules of links that this process has set.
	accept map[int]Accept
}

// NewPart returns the part of a data plane with a SCION router.
func NewPart(c Config) *Part { return &Part{Config: c, accept: make(map[int]Accept)} }

// Name implements datapath.Part.
func (p *Part) Name() string { return Stage }

// Check implements datapath.Part.
func (p *Part) Check() error { return p.Config.validate() }

// State implements datapath.Part.
func (p *Part) State(old *datapath.Instance) (datapath.State, error) {
	p.state = state{Config: p.Config, Counters: make(map[string]int), Discriminators: p.Discriminators}
	if p.Discriminators == nil {
		p.state.Discriminators = Of(old).keptDiscriminators(p.Config)
	}
	maps.Copy(p.state.Counters, Of(old).linkSlots())
	for _, l := range p.Config.Links {
		if _, ok := p.state.Counters[l.Name]; !ok {
			p.state.Counters[l.Name] = len(p.state.Counters)
		}
	}
	if old != nil {
		p.formerKey = Of(old).slowPathKey()
	}
	return datapath.State{Version: stateVersion, Value: p.state}, nil
}

// minCounters is the least number of links that the traffic counters have room for. It is generous, because the counters
// are copied when the map grows.
const minCounters = 64

// Load implements datapath.Part.
func (p *Part) Load(l *datapath.Loading) error {
	p.unattended = l.Unattended
	c := p.Config
	var pairs4, pairs6 int
	for _, l := range c.Links {
		switch {
		case l.Scope == ScopeInternal:
		case l.Local.Addr().Is4():
			pairs4++
		default:
			pairs6++
		}
	}
	maxID := 0
	for _, i := range c.Interfaces {
		maxID = max(maxID, int(i.ID))
	}
	l.Resize(map[string]int{
		bpfobj.PipelineMapScionPairs4:   pairs4,
		bpfobj.PipelineMapScionPairs6:   pairs6,
		bpfobj.PipelineMapScionIfaces:   maxID + 1,
		bpfobj.PipelineMapScionLinks:    len(c.Links),
		bpfobj.PipelineMapScionRefused:  len(c.Links),
		bpfobj.PipelineMapScionServices: len(c.Services),
		bpfobj.PipelineMapScionTraffic:  1 << bits.Len(uint(max(len(p.state.Counters), minCounters)-1)),
	})
	internal := c.Links[0].Local
	return bpfobj.SetVariables(l.Spec, map[string]any{
		bpfobj.PipelineVarAesTe:                 aesTables(),
		bpfobj.PipelineVarScionOn:               true,
		bpfobj.PipelineVarScionSkipMac:          p.SkipMAC,
		bpfobj.PipelineVarScionUseFib:           l.Unattended,
		bpfobj.PipelineVarScionLocalIa:          bits.ReverseBytes64(c.LocalIA),
		bpfobj.PipelineVarScionInternalV6:       internal.Addr().Is6(),
		bpfobj.PipelineVarScionInternalPort:     bpfobj.Wire16(internal.Port()),
		bpfobj.PipelineVarScionInternalAddr:     bpfobj.AddrWords(internal.Addr()),
		bpfobj.PipelineVarScionInternalCounters: uint32(p.state.Counters[c.Links[0].Name]),
		bpfobj.PipelineVarScionServicesOn:       len(c.Services) > 0,
		bpfobj.PipelineVarScionPortFirst:        c.PortStart,
		bpfobj.PipelineVarScionPortLast:         c.PortEnd,
		bpfobj.PipelineVarScionBfdMinTtl:        c.BFDMinTTL,
		bpfobj.PipelineVarScionUdpPorts:         udpPortBits(c),
	})
}

// Maps of the SCION router that an adopting data plane shares with the adopted one: kept in any case, fixed only if the
// configuration is the same.
var (
	kept = []string{
		bpfobj.PipelineMapHopCache, bpfobj.PipelineMapScionHosts, bpfobj.PipelineMapScionKeys,
		bpfobj.PipelineMapScionTraffic, bpfobj.PipelineMapScionWanted,
	}
	fixed = []string{
		bpfobj.PipelineMapScionIfaces, bpfobj.PipelineMapScionLinks, bpfobj.PipelineMapScionPairs4,
		bpfobj.PipelineMapScionPairs6, bpfobj.PipelineMapScionRefused, bpfobj.PipelineMapScionServices,
	}
)

// Shared implements datapath.Part.
func (p *Part) Shared(l *datapath.Loading) []string {
	shared := l.Fitting(kept...)
	// The fixed maps are filled together, so all are shared or none.
	if l.AllFit(fixed...) && Of(l.Old).Config().equal(p.Config) {
		shared = append(shared, fixed...)
	}
	return shared
}

// Fill implements datapath.Part.
func (p *Part) Fill(l *datapath.Loading, inst *datapath.Instance) error {
	slow, err := newSlowKeyMap()
	if err != nil {
		return err
	}
	inst.AddMap(slowKeyMap, slow)
	schedule, err := newScheduleMap()
	if err != nil {
		return err
	}
	inst.AddMap(scheduleMap, schedule)
	now, old := Of(inst), Of(l.Old)
	if !l.Reused(bpfobj.PipelineMapScionLinks) {
		if err := now.fillConfig(old); err != nil {
			return err
		}
	}
	if l.Old == nil {
		return nil
	}
	if err := now.writeSchedule(old.schedule()); err != nil { // until the process writes its own
		return err
	}
	if !l.Reused(bpfobj.PipelineMapScionKeys) {
		if err := copyKeys(old.Map(bpfobj.PipelineMapScionKeys), now.Map(bpfobj.PipelineMapScionKeys)); err != nil {
			return err
		}
	}
	if !l.Reused(bpfobj.PipelineMapScionTraffic) {
		if err := now.copyCounters(old); err != nil {
			return err
		}
	}
	return now.forgetDeadHops()
}

// FillPort implements datapath.PortFiller.
func (p *Part) FillPort(inst *datapath.Instance, index int, port bpfobj.PipelinePort) ([]bpfobj.PipelinePort, error) {
	return Of(inst).portPair(index, port)
}

// Refresh implements datapath.Refresher.
func (p *Part) Refresh(inst *datapath.Instance) error {
	for link, a := range p.accept {
		if err := Of(inst).writeAccept(link, a); err != nil {
			return err
		}
	}
	return nil
}

// unknownRate is the limit in packets per second for end hosts whose next hop is not known. Each such host has an entry in
// the kernel's neighbor table, which by default begins to evict others at 512.
const unknownRate = 1_000

// Limits implements datapath.Limiter.
func (p *Part) Limits() map[bpfobj.PipelineReason]uint64 {
	limits := map[bpfobj.PipelineReason]uint64{
		bpfobj.PipelineReasonPUNT_SCION_BFD:          datapath.TrafficRate,
		bpfobj.PipelineReasonPUNT_SCION_NEXT_HOP:     datapath.TrafficRate,
		bpfobj.PipelineReasonPUNT_SCION_HOST_KERNEL:  datapath.TrafficRate,
		bpfobj.PipelineReasonPUNT_SCION_MTU:          datapath.TrafficRate, // answers have a limit of their own
		bpfobj.PipelineReasonPUNT_SCION_BUFFERS:      datapath.TrafficRate,
		bpfobj.PipelineReasonPUNT_SCION_CHECKSUM:     datapath.TrafficRate,
		bpfobj.PipelineReasonPUNT_SCION_HOST_UNKNOWN: unknownRate,
	}
	if p.unattended { // without a process no next hop becomes known, and the kernel delivers to all hosts
		limits[bpfobj.PipelineReasonPUNT_SCION_HOST_UNKNOWN] = datapath.TrafficRate
	}
	return limits
}

// LimitDomains implements datapath.Limiter. There is one domain for the services behind each interface, and one for each
// link (bpf/scion/limit.h).
func (p *Part) LimitDomains() int { return datapath.MaxPorts + len(p.Config.Links) }

// udpPortBits returns scion_udp_ports of bpf/scion/flow_hash.h: one bit for each UDP port, set if it is a link's local
// port.
func udpPortBits(c Config) (ports [1024]uint64) {
	for _, l := range c.Links {
		port := l.Local.Port()
		ports[port>>6] |= 1 << (port & 63)
	}
	return ports
}

func (c Config) equal(d Config) bool {
	return reflect.DeepEqual(c, d)
}

// linkType returns the type of an interface, LinkUnset if there is none with the ID.
func (c Config) linkType(id uint16) LinkType {
	for _, i := range c.Interfaces {
		if i.ID == id {
			return i.Type
		}
	}
	return LinkUnset
}

// validate refuses a configuration under which the programs would process packets wrongly.
func (c Config) validate() error {
	if len(c.Links) == 0 || c.Links[0].Scope != ScopeInternal {
		return errors.New("configuration has no internal link")
	}
	seen := make(map[[2]netip.AddrPort]string)
	for n, l := range c.Links {
		if !l.Local.Addr().IsValid() || l.Local.Addr().Is4In6() || l.Local.Addr().IsUnspecified() {
			return fmt.Errorf("link %s: %s is no local address: use an address of this host", l.Name, l.Local)
		}
		if n == 0 {
			continue
		}
		if l.Remote.Addr().BitLen() != l.Local.Addr().BitLen() {
			return fmt.Errorf("link %s: %s and %s are of different families", l.Name, l.Local, l.Remote)
		}
		pair := [2]netip.AddrPort{l.Local, l.Remote}
		if other, ok := seen[pair]; ok {
			return fmt.Errorf("links %s and %s both go from %s to %s", other, l.Name, l.Local, l.Remote)
		}
		seen[pair] = l.Name
	}
	names := make([]string, 0, len(c.Links))
	for _, l := range c.Links {
		names = append(names, l.Name)
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(c.Links) {
		return errors.New("configuration has two links of the same name")
	}
	for _, i := range c.Interfaces {
		if i.ID == 0 || i.Link < 1 || i.Link >= len(c.Links) {
			return fmt.Errorf("interface %d leads to link %d, which does not exist", i.ID, i.Link)
		}
	}
	return nil
}
