// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"math/bits"
	"net"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/bpfobj/fold"
	"culvert/internal/host/netdev"
)

// MaxPorts is the largest number of interfaces of an instance (MAX_PORTS of bpf/core/port.h).
const MaxPorts = 64

// keptMaps names the engine's own maps that a new program shares with the old one.
var keptMaps = []string{bpfobj.PipelineMapCounters, bpfobj.PipelineMapCpumapEnqueued}

// load loads the pipeline and writes its maps. It touches a running data plane only by writing to shared maps.
func load(old *Instance, m meta, o Options, ports []*net.Interface) (_ *Instance, err error) {
	spec, err := loadPipeline(m.Form)
	if err != nil {
		return nil, err
	}
	l := &Loading{
		Old: old, Spec: spec, Unattended: o.Unattended, PortSlots: len(m.Ports),
		layouts: MapLayouts(spec), reused: make(map[string]*ebpf.Map),
	}
	l.sizeMaps(o, ports)
	if err := setConstants(spec, m, o); err != nil {
		return nil, err
	}
	for _, p := range o.Parts {
		if err := p.Load(l); err != nil {
			return nil, err
		}
	}
	inst := &Instance{meta: m, maps: make(map[string]*ebpf.Map), parts: o.Parts, general: o.General, mu: new(sync.Mutex)}
	inst.meta.Layouts = l.layouts
	defer func() {
		if err != nil {
			inst.Close()
		}
	}()
	if err := inst.share(l); err != nil {
		return nil, err
	}
	coll, err := fold.Load(spec, ebpf.CollectionOptions{
		MapReplacements: l.reused,
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
	if err := inst.startWorkers(coll.Programs[bpfobj.PipelineProgWorker]); err != nil {
		return nil, err
	}
	if err := inst.fillLimits(); err != nil {
		return nil, err
	}
	if err := inst.fillPorts(ports); err != nil {
		return nil, err
	}
	if err := inst.fillOwn(); err != nil {
		return nil, err
	}
	for _, p := range o.Parts {
		if err := p.Fill(l, inst); err != nil {
			return nil, err
		}
	}
	if err := inst.fillStagePorts(ports); err != nil {
		return nil, err
	}
	if old != nil {
		if err := inst.adoptReasons(old, l); err != nil {
			return nil, err
		}
	}
	return inst, nil
}

// share clones the maps that the new program shares with the old one.
func (i *Instance) share(l *Loading) error {
	if l.Old == nil {
		return nil
	}
	if err := i.adoptLosses(l.Old); err != nil {
		return err
	}
	names := l.Fitting(keptMaps...)
	for _, p := range i.parts {
		names = append(names, p.Shared(l)...)
	}
	for _, name := range names {
		m, err := l.Old.maps[name].Clone()
		if err != nil {
			return fmt.Errorf("sharing map %s: %w", name, err)
		}
		i.maps[name], l.reused[name] = m, m
	}
	return nil
}

// minPortEntries is the least size of the map of interfaces, which is indexed by ifindex. An interface that is deleted and
// made again gets an index higher than all before, and has to fit.
const minPortEntries = 1 << 15

func (l *Loading) sizeMaps(o Options, ports []*net.Interface) {
	maxIndex := 0
	for _, p := range ports {
		maxIndex = max(maxIndex, p.Index)
	}
	room := 1 << bits.Len(uint(maxIndex))
	if !o.Temporary {
		room = max(room, minPortEntries)
	}
	l.Resize(map[string]int{
		bpfobj.PipelineMapPorts:       room,
		bpfobj.PipelineMapLimitShares: limitDomains(o.Parts) * bpfobj.ReasonCount,
	})
}

func setConstants(spec *ebpf.CollectionSpec, m meta, o Options) error {
	if err := spec.Variables[bpfobj.PipelineVarTaiOffsetNs].Set(taiOffset()); err != nil {
		return fmt.Errorf("setting the clock's offset: %w", err)
	}
	if netdev.OneBufferOnly() {
		if err := spec.Variables[bpfobj.PipelineVarOneBufferBelow].Set(uint32(netdev.FirstBuffer)); err != nil {
			return fmt.Errorf("setting what the first of several buffers holds: %w", err)
		}
	}
	if err := spec.Variables[bpfobj.PipelineVarStraightOff].Set(o.General); err != nil {
		return fmt.Errorf("taking the straight ways out: %w", err)
	}
	return setWorkers(spec, m, o.RoundRobin)
}

// taiOffset returns by how many nanoseconds CLOCK_TAI is ahead of CLOCK_REALTIME. The offset is a whole number of seconds:
// rounding removes the time between the two readings. (adjtimex(2) returns it too, but not in every container.)
func taiOffset() uint64 {
	var tai, utc unix.Timespec
	if unix.ClockGettime(unix.CLOCK_TAI, &tai) != nil || unix.ClockGettime(unix.CLOCK_REALTIME, &utc) != nil {
		return 0
	}
	diff := time.Duration(tai.Nano() - utc.Nano()).Round(time.Second)
	return uint64(max(diff, 0))
}

// Refresh updates what the programs know of the host: the offset of CLOCK_TAI from UTC, MAC addresses and indexes of
// interfaces, and whether frames can be redirected to them. It calls the Refreshers among the parts. FollowBonds does the same for members
// of bonds.
func (i *Instance) Refresh() error {
	if i.taiOffset != nil { // loaded by this process
		if err := i.taiOffset.Set(taiOffset()); err != nil {
			return fmt.Errorf("setting the clock's offset of %s: %w", i.Name(), err)
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	err := errors.Join(i.refreshPorts(), i.fillOwn())
	for _, p := range i.parts {
		if r, ok := p.(Refresher); ok {
			err = errors.Join(err, r.Refresh(i))
		}
	}
	return err
}
