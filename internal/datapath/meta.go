// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"culvert/internal/host/pins"
)

// meta describes a generation to processes that open its pins. It is stored as JSON in a map that is pinned with them.
type meta struct {
	Name  string
	NetNS uint32
	// Cookie is the cookie of the network namespace, and NetNS its inode number (pins.Space).
	Cookie  uint64
	Generic bool
	// Unattended is Options.Unattended.
	Unattended bool
	// Stages has the states of the parts, by their names.
	Stages map[string]savedState
	// Form is the form of the eBPF objects that the programs were loaded from, "" for the plain one.
	Form string `json:",omitempty"`
	// Fronts names the parts that may have a program in front of the pipeline, in the order in which packets meet them.
	Fronts []string `json:",omitempty"`
	// Workers are the CPUs that packets are spread over. FlowKey is the key of the hash that assigns flows to them. It goes
	// on to the next generation, so that flows stay on their CPUs.
	Workers Workers
	FlowKey []uint32
	// Ports has the slot of each interface that was ever attached, by name (Instance.PortSlot).
	Ports map[string]int
	// Attached is Options.Interfaces: it includes interfaces that are still waited for.
	Attached []string
	// Layouts has a fingerprint of the keys and values of each map (MapLayouts). Another version of culvert may give another
	// meaning to as many bytes.
	Layouts map[string]string
	// Reasons has verdict and name of each reason, by its index in the counters. Another version may number reasons
	// differently.
	Reasons []string
}

// metaMap is the name of the pin.
const metaMap = "meta"

// newMeta returns the description of a new generation. Slots and flow key go on from old, which may be nil.
func newMeta(old *Instance, here pins.Space, o Options) (meta, error) {
	m := meta{
		Name:       o.Name,
		NetNS:      here.Inode,
		Cookie:     here.Cookie,
		Generic:    o.Generic,
		Unattended: o.Unattended,
		Workers:    o.Workers,
		Ports:      make(map[string]int),
		Reasons:    reasonNames(),
		Form:       formOf(o.Parts),
	}
	for _, p := range fronted(o.Parts) {
		m.Fronts = append(m.Fronts, p.Name())
	}
	if old != nil && len(old.meta.FlowKey) == 2*flowWords {
		m.FlowKey = old.meta.FlowKey
	} else {
		m.FlowKey = newFlowKey()
	}
	if old != nil {
		maps.Copy(m.Ports, old.meta.Ports)
	}
	return m, m.save(old, o.Parts)
}

// renamePorts gives the slots of renamed interfaces to their new names. Renamed maps present names to former ones. If a new
// name has a slot already, from another device, then nothing changes.
func (m *meta) renamePorts(renamed map[string]string) {
	slots := maps.Clone(m.Ports)
	for _, old := range renamed {
		delete(m.Ports, old)
	}
	for name, old := range renamed {
		slot, ok := slots[old]
		if _, taken := m.Ports[name]; taken || !ok {
			m.Ports = slots
			return
		}
		m.Ports[name] = slot
	}
}

// assignPorts notes the interfaces to attach to, and gives a slot to each that has none.
func (m *meta) assignPorts(names []string) error {
	for _, name := range names {
		if slices.Contains(m.Attached, name) {
			continue
		}
		if _, ok := m.Ports[name]; !ok {
			if len(m.Ports) == MaxPorts {
				return fmt.Errorf("interface %s: the instance has counted %d interfaces already: "+
					"detach it with 'culvert detach --all' and start afresh", name, MaxPorts)
			}
			m.Ports[name] = len(m.Ports)
		}
		m.Attached = append(m.Attached, name)
	}
	return nil
}

// toMap returns a new map with m as its only entry.
func (m *meta) toMap() (*ebpf.Map, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	em, err := blobMap(metaMap, b)
	if err != nil {
		return nil, fmt.Errorf("describing %s: %w", m.Name, err)
	}
	return em, nil
}

// metaFromPin reads the description that is pinned at path.
func metaFromPin(path string) (m meta, err error) {
	b, err := blobFromPin(path)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(bytes.TrimRight(b, "\x00"), &m); err != nil {
		return m, fmt.Errorf("reading %s: %w", path, err)
	}
	return m, nil
}
