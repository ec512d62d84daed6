// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
)

// meta describes a loaded instance to whoever opens its pins. It is kept in a map beside them.
type meta struct {
	Name  string
	NetNS uint32
	// Cookie is the namespace's, NetNS its inode (see space).
	Cookie  uint64
	Generic bool
	SkipMAC bool
	// Unattended says that no process was to keep it in step.
	Unattended bool
	Config     Config
	// Route is nil if the IP router is off.
	Route *RouteOptions
	// Balance is nil if the load balancer is off. BalanceSecret decides where a flow stands in its table.
	Balance       *BalanceOptions
	BalanceSecret []uint32
	// Workers are the CPUs that packets are spread over; FlowKey decides which flow goes where. It
	// stays with the instance, so that flows stay where they are.
	Workers Workers
	FlowKey []uint32
	// Ports has the counter slot of each interface ever served, by name; Counters that of each
	// link. Slots are never given to another interface or link while the instance lives.
	Ports    map[string]int
	Counters map[string]int
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

func newMeta(old *Instance, here space, o Options, c Config) meta {
	m := meta{
		Name:       o.Name,
		NetNS:      here.inode,
		Cookie:     here.cookie,
		Generic:    o.Generic,
		SkipMAC:    o.SkipMAC,
		Unattended: o.Unattended,
		Config:     c,
		Route:      o.Route,
		Balance:    o.Balance,
		Workers:    o.Workers,
		Ports:      make(map[string]int),
		Counters:   make(map[string]int),
		Reasons:    reasonNames(),
	}
	if old != nil && len(old.meta.FlowKey) == 2*flowWords {
		m.FlowKey = old.meta.FlowKey
	} else {
		m.FlowKey = newFlowKey()
	}
	if old != nil && len(old.meta.BalanceSecret) == balanceSecretWords {
		m.BalanceSecret = old.meta.BalanceSecret
	} else {
		m.BalanceSecret = newBalanceSecret()
	}
	if old != nil {
		maps.Copy(m.Ports, old.meta.Ports)
		maps.Copy(m.Counters, old.meta.Counters)
	}
	for _, l := range c.Links {
		if _, ok := m.Counters[l.Name]; !ok {
			m.Counters[l.Name] = len(m.Counters)
		}
	}
	return m
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
			if len(m.Ports) == maxPorts {
				return fmt.Errorf("interface %s: the instance has counted %d interfaces already: "+
					"detach it with 'culvert detach --all' and start afresh", name, maxPorts)
			}
			m.Ports[name] = len(m.Ports)
		}
		m.Attached = append(m.Attached, name)
	}
	return nil
}

func (m *meta) maxCounterSlot() int {
	return len(m.Counters) - 1
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

func (c Config) equal(d Config) bool {
	return reflect.DeepEqual(c, d)
}

func (c Config) linkType(id uint16) LinkType {
	for _, i := range c.Interfaces {
		if i.ID == id {
			return i.Type
		}
	}
	return LinkUnset
}

// scion tells whether the SCION router is on.
func (c Config) scion() bool { return len(c.Links) > 0 }

// validate refuses options that lead nowhere, and a wrong configuration.
func (o Options) validate(c Config) error {
	if !c.scion() && len(c.Interfaces) == 0 {
		if o.Route == nil { // a filter alone, which comes later
			return nil
		}
		return o.Route.validate()
	}
	if err := c.validate(); err != nil || o.Route == nil {
		return err
	}
	return o.Route.validate()
}

// validate refuses what would make the programs give wrong answers.
func (c Config) validate() error {
	if len(c.Links) == 0 || c.Links[0].Scope != ScopeInternal {
		return errors.New("configuration has no internal link")
	}
	seen := make(map[[2]netip.AddrPort]string)
	for n, l := range c.Links {
		if !l.Local.Addr().IsValid() || l.Local.Addr().Is4In6() || l.Local.Addr().IsUnspecified() {
			return fmt.Errorf("link %s: %s is no local address: give one of this host's", l.Name, l.Local)
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
