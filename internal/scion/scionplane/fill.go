// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
)

// fillConfig writes the maps that follow from the configuration. A link that old has too, with the same addresses, keeps
// its next hop and its state.
func (p Plane) fillConfig(old Plane) error {
	kept := old.linksByAddress()
	for n, l := range p.Config().Links {
		ip, ipSum, l4Sum := outerHeader(l.Local, l.Remote)
		raw := bpfobj.PipelineScionLink{
			Ip:       ip,
			IpSum:    ipSum,
			L4Sum:    l4Sum,
			Counters: uint32(p.linkSlots()[l.Name]),
			Scope:    uint8(l.Scope),
		}
		if l.Local.Addr().Is6() {
			raw.V6 = 1
		}
		if l.Scope == ScopeInternal {
			raw.Up = 1
		}
		if k, ok := kept[raw.Ip]; ok {
			raw.Hop, raw.Up = k.Hop, k.Up
		}
		if err := p.Map(bpfobj.PipelineMapScionLinks).Put(uint32(n), raw); err != nil {
			return fmt.Errorf("writing link %s: %w", l.Name, err)
		}
		if err := p.adoptAccept(old, l, n); err != nil {
			return err
		}
		if err := p.fillPair(n, l); err != nil {
			return err
		}
	}
	for _, f := range p.Config().Interfaces {
		raw := bpfobj.PipelineScionIface{Link: uint32(f.Link) + 1, Type: uint32(f.Type)}
		if err := p.Map(bpfobj.PipelineMapScionIfaces).Put(uint32(f.ID), raw); err != nil {
			return fmt.Errorf("writing interface %d: %w", f.ID, err)
		}
	}
	for _, a := range p.Config().Services {
		if err := p.Map(bpfobj.PipelineMapScionServices).Put(bpfobj.AddrWords(a), uint32(1)); err != nil {
			return fmt.Errorf("writing service %s: %w", a, err)
		}
	}
	return nil
}

// fillPair writes the addresses and ports by which incoming datagrams of link n are recognized.
func (p Plane) fillPair(n int, l Link) error {
	if l.Scope == ScopeInternal {
		return nil
	}
	family, pair := pairBytes(l)
	m, key := p.Map(bpfobj.PipelineMapScionPairs6), pair[:]
	if family == 4 {
		m, key = p.Map(bpfobj.PipelineMapScionPairs4), pair[:12]
	}
	if err := m.Put(key, p.ingress(n, l)); err != nil {
		return fmt.Errorf("writing the addresses of link %s: %w", l.Name, err)
	}
	return nil
}

// ingress returns what the programs need to know of link n to process its datagrams.
func (p Plane) ingress(n int, l Link) bpfobj.PipelineScionIngress {
	return bpfobj.PipelineScionIngress{
		Link:     uint32(n),
		Counters: uint32(p.linkSlots()[l.Name]),
		Ifid:     l.IfID,
		Scope:    uint8(l.Scope),
		Type:     uint8(p.Config().linkType(l.IfID)),
	}
}

// linksByAddress returns the entries of the links in the programs' map by their headers, which have the addresses and ports.
func (p Plane) linksByAddress() map[[48]uint8]bpfobj.PipelineScionLink {
	links := make(map[[48]uint8]bpfobj.PipelineScionLink)
	if p.Instance == nil {
		return links
	}
	for n := range p.Config().Links {
		var raw bpfobj.PipelineScionLink
		if p.Map(bpfobj.PipelineMapScionLinks).Lookup(uint32(n), &raw) == nil {
			links[raw.Ip] = raw
		}
	}
	return links
}

// portPair returns the writes that put the first link whose next hop is by an interface into the entry of the interface.
// The programs then need no lookup for the datagrams of that link.
func (p Plane) portPair(ifindex int, old bpfobj.PipelinePort) ([]bpfobj.PipelinePort, error) {
	old.Scion.Seq &^= 1 // it is odd if a process died while writing
	port := old
	port.Scion = bpfobj.PipelineScionPort{Seq: old.Scion.Seq}
	states, err := p.LinkStates()
	if err != nil {
		return nil, err
	}
	for n, l := range p.Config().Links {
		if l.Scope == ScopeInternal || states[n].NextHop.IfIndex != ifindex {
			continue
		}
		port.Scion.Family, port.Scion.Pair = pairBytes(l)
		port.Scion.In = p.ingress(n, l)
		break
	}
	if port == old {
		return nil, nil
	}
	// The programs read without a lock. They use an entry only if its sequence counter is even, and the same before and
	// after reading.
	steps := []bpfobj.PipelinePort{old, port, port}
	steps[0].Scion.Seq, steps[1].Scion.Seq, steps[2].Scion.Seq = old.Scion.Seq+1, old.Scion.Seq+1, old.Scion.Seq+2
	return steps, nil
}

// updatePortPair updates the entry of an interface that a link's next hop is by now or was by before. An interface without
// the program has no entry.
func (p Plane) updatePortPair(ifindex int) error {
	err := p.EditPort(ifindex, func(port bpfobj.PipelinePort) ([]bpfobj.PipelinePort, error) { return p.portPair(ifindex, port) })
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// pairBytes returns the IP version, and the remote address, the local address, the remote port and the local port in
// network byte order, as incoming datagrams of the link have them.
func pairBytes(l Link) (family uint8, pair [36]uint8) {
	b := append(l.Remote.Addr().AsSlice(), l.Local.Addr().AsSlice()...)
	b = binary.BigEndian.AppendUint16(b, l.Remote.Port())
	b = binary.BigEndian.AppendUint16(b, l.Local.Port())
	copy(pair[:], b)
	if l.Local.Addr().Is4() {
		return 4, pair
	}
	return 6, pair
}
