// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"math/bits"
	"net"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
)

// maxPorts is MAX_PORTS of bpf/core/counters.h.
const maxPorts = 64

// minCounters is how many links the traffic counters have room for at least. They are sized
// generously because growing them means to copy them.
const minCounters = 64

// carried maps keep their contents when a changed configuration is loaded, config maps keep them
// only while it stays the same; for those of the load balancer see planBalance. The others belong to one
// loaded program.
var (
	carriedMaps = []string{
		bpfobj.PipelineMapCounters, bpfobj.PipelineMapCpumapEnqueued, bpfobj.PipelineMapHopCache, bpfobj.PipelineMapScionHosts,
		bpfobj.PipelineMapScionKeys, bpfobj.PipelineMapScionTraffic, bpfobj.PipelineMapScionWanted,
	}
	configMaps = []string{
		bpfobj.PipelineMapScionIfaces, bpfobj.PipelineMapScionLinks, bpfobj.PipelineMapScionPairs4,
		bpfobj.PipelineMapScionPairs6, bpfobj.PipelineMapScionRefused, bpfobj.PipelineMapScionServices,
	}
)

// load fills the maps and loads the program. Nothing that runs is changed.
func load(old *Instance, m meta, o Options, ports []*net.Interface) (_ *Instance, err error) {
	spec, err := bpfobj.LoadPipeline()
	if err != nil {
		return nil, err
	}
	sizeMaps(spec, m, ports)
	if room := &spec.Maps[bpfobj.PipelineMapPorts].MaxEntries; !o.Temporary {
		*room = max(*room, minPorts)
	}
	if err := setConstants(spec, m, o); err != nil {
		return nil, err
	}
	if err := setWorkers(spec, m, o.Turns); err != nil {
		return nil, err
	}
	if err := setRoute(spec, o.Route); err != nil {
		return nil, err
	}
	if err := setBalance(spec, m); err != nil {
		return nil, err
	}
	inst := &Instance{meta: m, maps: make(map[string]*ebpf.Map)}
	defer func() {
		if err != nil {
			inst.Close()
		}
	}()
	if inst.maps[slowKeyMap], err = newSlowKeyMap(); err != nil {
		return nil, err
	}
	if old != nil {
		inst.formerKey = old.slowPathKey()
		if err := inst.carryLosses(old); err != nil {
			return nil, err
		}
	}
	layouts := MapLayouts(spec)
	inst.meta.Layouts = layouts
	reused := make(map[string]*ebpf.Map)
	same := func(name string) bool {
		return old != nil && old.maps[name] != nil && old.meta.Layouts[name] == layouts[name]
	}
	fits := func(name string) bool {
		return same(name) && spec.Maps[name].Compatible(old.maps[name]) == nil
	}
	// All or none: they are filled together.
	sameConfig := old != nil && old.meta.Config.equal(m.Config) &&
		!slices.ContainsFunc(configMaps, func(name string) bool { return !fits(name) })
	balance := planBalance(old, m, same, fits)
	for name := range spec.Maps {
		if !fits(name) {
			continue
		}
		if slices.Contains(carriedMaps, name) || slices.Contains(balance.shared, name) || sameConfig && slices.Contains(configMaps, name) {
			if inst.maps[name], err = old.maps[name].Clone(); err != nil {
				return nil, fmt.Errorf("taking over map %s: %w", name, err)
			}
			reused[name] = inst.maps[name]
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		MapReplacements: reused,
	})
	if err != nil {
		return nil, bpfobj.LoadError(err)
	}
	defer coll.Close()
	inst.prog = coll.DetachProgram(bpfobj.PipelineProgRx)
	inst.taiOffset = coll.Variables[bpfobj.PipelineVarTaiOffsetNs]
	for name, cm := range coll.Maps {
		if inst.maps[name] == nil {
			inst.maps[name] = cm
			delete(coll.Maps, name)
		}
	}
	if reused[bpfobj.PipelineMapScionLinks] == nil {
		if err := inst.fillConfig(old); err != nil {
			return nil, err
		}
	}
	if err := inst.startWorkers(coll.Programs[bpfobj.PipelineProgWorker]); err != nil {
		return nil, err
	}
	if err := inst.fillPorts(ports); err != nil {
		return nil, err
	}
	if err := inst.fillLimits(o.Unattended); err != nil {
		return nil, err
	}
	if err := inst.openRoute(); err != nil {
		return nil, err
	}
	if err := inst.copyBalance(old, balance); err != nil {
		return nil, err
	}
	if err := inst.openBalance(o.Balance); err != nil {
		return nil, err
	}
	if old != nil {
		if err := errors.Join(inst.carryCounters(old, reused), inst.carryReasons(old, reused)); err != nil {
			return nil, err
		}
	}
	return inst, nil
}

// minPorts is how many indexes of interfaces there is room for at least: an interface that is deleted and made again has
// another one, higher than all before.
const minPorts = 1 << 15

func sizeMaps(spec *ebpf.CollectionSpec, m meta, ports []*net.Interface) {
	maxIndex := 0
	for _, p := range ports {
		maxIndex = max(maxIndex, p.Index)
	}
	var pairs4, pairs6 int
	for _, l := range m.Config.Links {
		switch {
		case l.Scope == ScopeInternal:
		case l.Local.Addr().Is4():
			pairs4++
		default:
			pairs6++
		}
	}
	maxID := 0
	for _, i := range m.Config.Interfaces {
		maxID = max(maxID, int(i.ID))
	}
	size := func(name string, n int) { spec.Maps[name].MaxEntries = uint32(max(n, 1)) }
	size(bpfobj.PipelineMapPorts, 1<<bits.Len(uint(maxIndex)))
	size(bpfobj.PipelineMapScionPairs4, pairs4)
	size(bpfobj.PipelineMapScionPairs6, pairs6)
	size(bpfobj.PipelineMapScionIfaces, maxID+1)
	size(bpfobj.PipelineMapScionLinks, len(m.Config.Links))
	size(bpfobj.PipelineMapScionRefused, len(m.Config.Links))
	size(bpfobj.PipelineMapScionServices, len(m.Config.Services))
	size(bpfobj.PipelineMapLimitShares, (limitDomainLinks+len(m.Config.Links))*bpfobj.ReasonCount)
	size(bpfobj.PipelineMapScionTraffic, 1<<bits.Len(uint(max(m.maxCounterSlot(), minCounters-1))))
}

func setConstants(spec *ebpf.CollectionSpec, m meta, o Options) error {
	c := m.Config
	if !c.scion() {
		return spec.Variables[bpfobj.PipelineVarTaiOffsetNs].Set(taiOffset())
	}
	internal := c.Links[0].Local
	for name, value := range map[string]any{
		bpfobj.PipelineVarAesTe:                 aesTables(),
		bpfobj.PipelineVarScionOn:               true,
		bpfobj.PipelineVarScionSkipMac:          o.SkipMAC,
		bpfobj.PipelineVarScionUseFib:           o.Unattended,
		bpfobj.PipelineVarScionLocalIa:          bits.ReverseBytes64(c.LocalIA),
		bpfobj.PipelineVarScionInternalV6:       internal.Addr().Is6(),
		bpfobj.PipelineVarScionInternalPort:     bpfobj.Wire16(internal.Port()),
		bpfobj.PipelineVarScionInternalAddr:     bpfobj.AddrWords(internal.Addr()),
		bpfobj.PipelineVarScionInternalCounters: uint32(m.Counters[c.Links[0].Name]),
		bpfobj.PipelineVarScionServicesOn:       len(c.Services) > 0,
		bpfobj.PipelineVarScionPortFirst:        c.PortStart,
		bpfobj.PipelineVarScionPortLast:         c.PortEnd,
		bpfobj.PipelineVarScionBfdMinTtl:        c.BFDMinTTL,
		bpfobj.PipelineVarTaiOffsetNs:           taiOffset(),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	return nil
}

// taiOffset is how far CLOCK_TAI is ahead of CLOCK_REALTIME, ns. It is whole seconds; what is left
// over is the time between the two readings. (adjtimex(2) would tell, but not to everybody.)
func taiOffset() uint64 {
	var tai, utc unix.Timespec
	if unix.ClockGettime(unix.CLOCK_TAI, &tai) != nil || unix.ClockGettime(unix.CLOCK_REALTIME, &utc) != nil {
		return 0
	}
	diff := time.Duration(tai.Nano() - utc.Nano()).Round(time.Second)
	return uint64(max(diff, 0))
}

// Refresh brings the programs up to what has changed on the host since they were loaded: the offset
// of CLOCK_TAI, which they read, from UTC, the interfaces' addresses and abilities, and their indexes.
func (i *Instance) Refresh() error {
	if i.taiOffset != nil { // loaded by this process
		if err := i.taiOffset.Set(taiOffset()); err != nil {
			return fmt.Errorf("setting the clock's offset of %s: %w", i.Name(), err)
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return errors.Join(i.refreshPorts(), i.refreshAccept())
}
