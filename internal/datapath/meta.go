// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/host/pins"
)

// meta describes a loaded instance to whoever opens its pins. It is kept in a map beside them.
type meta struct {
	Name  string
	NetNS uint32
	// Cookie is the namespace's, NetNS its inode (pins.Space).
	Cookie  uint64
	Generic bool
	// Unattended says that no process was to keep it in step.
	Unattended bool
	// Stages has what the parts of stages keep, by their names.
	Stages map[string]savedState
	// Fronts names the parts that may have a program in front of the pipeline, in the order in which packets meet them.
	Fronts []string `json:",omitempty"`
	// Workers are the CPUs that packets are spread over; FlowKey decides which flow goes where. It
	// stays with the instance, so that flows stay where they are.
	Workers Workers
	FlowKey []uint32
	// Ports has the counter slot of each interface ever served, by name. Slots are never given to another interface while
	// the instance lives.
	Ports map[string]int
	// Attached names the interfaces that were asked for: those that were there then, and those that are waited for.
	Attached []string
	// Layouts fingerprints the keys and values of each map: another version may have as many bytes
	// of another meaning.
	Layouts map[string]string
	// Reasons has verdict and name of the reason that each counter is of: another version may number them otherwise.
	Reasons []string
}

// metaMap is the name of the pin.
const metaMap = "meta"

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

// renamePorts lets interfaces that have got new names go on with their counters. The argument gives
// the old name for the new one. If a new name has counters of its own, from another device, all
// names keep theirs.
func (m *meta) renamePorts(before map[string]string) {
	slots := maps.Clone(m.Ports)
	for _, old := range before {
		delete(m.Ports, old)
	}
	for name, old := range before {
		slot, ok := slots[old]
		if _, taken := m.Ports[name]; taken || !ok {
			m.Ports = slots
			return
		}
		m.Ports[name] = slot
	}
}

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

// toMap stores m in a map of its own.
func (m *meta) toMap() (*ebpf.Map, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	em, err := ebpf.NewMap(&ebpf.MapSpec{
		Name:       metaMap,
		Type:       ebpf.Array,
		KeySize:    4,
		ValueSize:  uint32(len(b)),
		MaxEntries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the map that describes %s: %w", m.Name, bpfobj.LoadError(err))
	}
	if err := em.Put(uint32(0), b); err != nil {
		em.Close()
		return nil, fmt.Errorf("describing %s: %w", m.Name, err)
	}
	return em, nil
}

func metaFromPin(path string) (m meta, err error) {
	em, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return m, err
	}
	defer em.Close()
	b, err := em.LookupBytes(uint32(0))
	if err != nil {
		return m, fmt.Errorf("reading %s: %w", path, err)
	}
	if err := json.Unmarshal(bytes.TrimRight(b, "\x00"), &m); err != nil {
		return m, fmt.Errorf("reading %s: %w", path, err)
	}
	return m, nil
}
