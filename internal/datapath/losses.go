// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"maps"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"culvert/internal/bpfobj"
)

// lossTracepoints has the program for each tracepoint that reports losses.
var lossTracepoints = map[string]string{
	"xdp_redirect_err": bpfobj.LossesProgRedirectErr,
	"xdp_devmap_xmit":  bpfobj.LossesProgDevmapXmit,
	"xdp_exception":    bpfobj.LossesProgException,
}

// workerTracepoints is the same for the tracepoints that only data planes with workers need.
var workerTracepoints = map[string]string{
	"xdp_cpumap_enqueue": bpfobj.LossesProgCpumapEnqueue,
	"xdp_cpumap_kthread": bpfobj.LossesProgCpumapKthread,
}

// watchLosses loads the programs that count losses after the verdict, attaches them to tracepoints and pins the links in
// directory gen. The programs belong to generation number, whose map of interfaces they read, and count only while it is the
// one that counts (countLosses). They also count what the queues of old's workers lose from now on. A temporary instance has
// no directory.
func (i *Instance) watchLosses(gen string, number uint32, old *Instance) error {
	spec, err := bpfobj.LoadLosses()
	if err != nil {
		return err
	}
	tracepoints, err := i.configureLosses(spec, number, old)
	if err != nil {
		return err
	}
	replace := map[string]*ebpf.Map{
		bpfobj.LossesMapPorts:          i.maps[bpfobj.PipelineMapPorts],
		bpfobj.LossesMapCpumapEnqueued: i.maps[bpfobj.PipelineMapCpumapEnqueued],
	}
	spec.Maps[bpfobj.LossesMapPorts].MaxEntries = i.maps[bpfobj.PipelineMapPorts].MaxEntries()
	for _, name := range lossMaps {
		if m := i.maps[name]; m != nil {
			replace[name] = m
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replace})
	if err != nil {
		return fmt.Errorf("counting losses: %w", bpfobj.LoadError(err))
	}
	defer coll.Close()
	for _, name := range lossMaps {
		if i.maps[name] != nil {
			continue
		}
		m := coll.DetachMap(name)
		i.maps[name] = m
		if i.temporary {
			continue
		}
		if err := m.Pin(filepath.Join(gen, name)); err != nil {
			return fmt.Errorf("pinning map %s: %w", name, err)
		}
	}
	for tracepoint, prog := range tracepoints {
		o := link.RawTracepointOptions{Name: tracepoint, Program: coll.Programs[prog]}
		attach := func() (link.Link, error) { return link.AttachRawTracepoint(o) }
		if i.temporary {
			i.lossProgs = append(i.lossProgs, coll.DetachProgram(prog))
			if err := i.hold(attach); err != nil {
				return fmt.Errorf("attaching to tracepoint %s: %w", tracepoint, err)
			}
			continue
		}
		l, err := attach()
		if err != nil {
			return fmt.Errorf("attaching to tracepoint %s: %w", tracepoint, err)
		}
		err = l.Pin(filepath.Join(gen, tracePrefix+tracepoint))
		l.Close()
		if err != nil {
			return fmt.Errorf("pinning tracepoint %s: %w", tracepoint, err)
		}
	}
	return nil
}

// configureLosses sets the constants of the programs that count losses, and deletes those that have nothing to count. It
// returns the tracepoints of the others with their programs.
func (i *Instance) configureLosses(spec *ebpf.CollectionSpec, number uint32, old *Instance) (map[string]string, error) {
	workers, err := i.workerMap()
	if err != nil {
		return nil, err
	}
	former, err := old.workerMap()
	if err != nil {
		return nil, err
	}
	possible, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("counting the CPUs: %w", err)
	}
	for name, value := range map[string]uint32{
		bpfobj.LossesVarNetns:           i.meta.NetNS,
		bpfobj.LossesVarGeneration:      number,
		bpfobj.LossesVarWorkerMap:       workers,
		bpfobj.LossesVarFormerWorkerMap: former,
		bpfobj.LossesVarCpuCount:        uint32(possible),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("setting %s: %w", name, err)
		}
	}
	tracepoints := maps.Clone(lossTracepoints)
	if workers != 0 || former != 0 {
		maps.Copy(tracepoints, workerTracepoints)
	} else {
		for _, prog := range workerTracepoints {
			delete(spec.Programs, prog)
		}
	}
	return tracepoints, nil
}

// lossMaps names the maps of losses, which generations share.
var lossMaps = []string{bpfobj.LossesMapLosses, bpfobj.LossesMapLossesBy, bpfobj.LossesMapLossesCounted}

// adoptLosses shares the maps of losses with old: all of them, or none if one does not fit, which another version of culvert
// may have made.
func (i *Instance) adoptLosses(old *Instance) error {
	spec, err := bpfobj.LoadLosses()
	if err != nil {
		return err
	}
	for _, name := range lossMaps {
		if m := old.maps[name]; m == nil && name != bpfobj.LossesMapLossesCounted || m != nil && spec.Maps[name].Compatible(m) != nil {
			return nil
		}
	}
	for _, name := range lossMaps {
		if old.maps[name] == nil {
			continue
		}
		if i.maps[name], err = old.maps[name].Clone(); err != nil {
			return fmt.Errorf("sharing map %s: %w", name, err)
		}
	}
	return nil
}

// countLosses makes generation number the one that counts losses and calls swap. If swap fails, the former one counts again.
// Both are attached, so each loss is counted by the one or by the other: see losses_counted in bpf/core/losses.bpf.c.
func (i *Instance) countLosses(number uint32, swap func() error) error {
	var before uint32
	m := i.maps[bpfobj.LossesMapLossesBy]
	if err := m.Lookup(uint32(0), &before); err != nil {
		return fmt.Errorf("reading who counts the losses of %s: %w", i.Name(), err)
	}
	WaitForRCU() // no CPU is in an event that the new generation's programs do not see
	if err := m.Put(uint32(0), number); err != nil {
		return fmt.Errorf("counting the losses of %s: %w", i.Name(), err)
	}
	if err := i.clearCounted(); err != nil {
		_ = m.Put(uint32(0), before)
		return fmt.Errorf("counting the losses of %s: %w", i.Name(), err)
	}
	err := swap()
	if err != nil {
		_ = m.Put(uint32(0), before)
	}
	return err
}

// clearCounted clears the marks that the former generation has left on CPUs whose last loss it has counted.
func (i *Instance) clearCounted() error {
	WaitForRCU() // no CPU is in an event that the former generation counts
	return i.maps[bpfobj.LossesMapLossesCounted].Put(uint32(0), make([]uint32, ebpf.MustPossibleCPU()))
}

// generationNumber returns the number of a generation from the path of its directory.
func generationNumber(gen string) (uint32, error) {
	n, err := strconv.ParseUint(filepath.Base(gen), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("directory %s: %w", gen, err)
	}
	return uint32(n), nil
}

// tracePrefix begins the names of the pins that watchLosses makes.
const tracePrefix = "trace-"

// losses returns the losses counted in a slot, by their names.
func (i *Instance) losses(slot int) (map[string]uint64, error) {
	lost := make(map[string]uint64)
	m := i.maps[bpfobj.LossesMapLosses]
	if m == nil {
		return lost, nil
	}
	for n, name := range lossNames() {
		var values []uint64
		if err := m.Lookup(uint32(slot*len(lossNames())+n), &values); err != nil {
			return nil, fmt.Errorf("reading the losses of %s: %w", i.Name(), err)
		}
		for _, v := range values {
			lost[name] += v
		}
	}
	return lost, nil
}
