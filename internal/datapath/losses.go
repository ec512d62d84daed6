// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// lossTracepoints names the program for each tracepoint that tells of a loss.
var lossTracepoints = map[string]string{
	"xdp_redirect_err": lossesProgRedirectErr,
	"xdp_devmap_xmit":  lossesProgDevmapXmit,
	"xdp_exception":    lossesProgException,
}

// watchLosses loads the programs that count what is lost after the verdict, and pins them into the
// generation, which they belong to: they read its table of interfaces.
func (i *Instance) watchLosses(gen string) error {
	spec, err := loadLosses()
	if err != nil {
		return err
	}
	if err := spec.Variables[lossesVarNetns].Set(i.meta.NetNS); err != nil {
		return fmt.Errorf("setting %s: %w", lossesVarNetns, err)
	}
	replace := map[string]*ebpf.Map{lossesMapPorts: i.maps[pipelineMapPorts]}
	spec.Maps[lossesMapPorts].MaxEntries = i.maps[pipelineMapPorts].MaxEntries()
	if m := i.maps[lossesMapLosses]; m != nil {
		replace[lossesMapLosses] = m
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replace})
	if err != nil {
		return fmt.Errorf("counting losses: %w", loadError(err))
	}
	defer coll.Close()
	if i.maps[lossesMapLosses] == nil {
		m := coll.DetachMap(lossesMapLosses)
		i.maps[lossesMapLosses] = m
		if err := m.Pin(filepath.Join(gen, lossesMapLosses)); err != nil {
			return fmt.Errorf("pinning map %s: %w", lossesMapLosses, err)
		}
	}
	for tracepoint, prog := range lossTracepoints {
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{
			Name:    tracepoint,
			Program: coll.Programs[prog],
		})
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

// lossesFit tells whether a map of losses from an earlier load, by another version of culvert even,
// can be counted in further.
func lossesFit(m *ebpf.Map) bool {
	if m == nil {
		return false
	}
	spec, err := loadLosses()
	return err == nil && spec.Maps[lossesMapLosses].Compatible(m) == nil
}

// tracePrefix begins the names of the pins of watchLosses.
const tracePrefix = "trace-"

func (i *Instance) losses(slot int) (map[string]uint64, error) {
	lost := make(map[string]uint64)
	m := i.maps[lossesMapLosses]
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
