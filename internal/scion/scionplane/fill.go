// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
)

// fillConfig writes the maps that are fixed by the configuration. A link that was there before
// keeps its next hop and its state.
func (p Plane) fillConfig(old Plane) error {
	kept := old.linksByName()
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
		if k, ok := kept[l.Name]; ok && k.Ip == raw.Ip {
			raw.Hop, raw.Up = k.Hop, k.Up
		}
		if err := p.Map(bpfobj.PipelineMapScionLinks).Put(uint32(n), raw); err != nil {
			return fmt.Errorf("writing link %s: %w", l.Name, err)
		}
		if err := p.carryAccept(old, l.Name, n); err != nil {
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

// fillPair writes what a datagram of the link looks like on its way in.
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

func (p Plane) ingress(n int, l Link) bpfobj.PipelineScionIngress {
	return bpfobj.PipelineScionIngress{
		Link:     uint32(n),
		Counters: uint32(p.linkSlots()[l.Name]),
		Ifid:     l.IfID,
		Scope:    uint8(l.Scope),
		Type:     uint8(p.Config().linkType(l.IfID)),
	}
}

func (p Plane) linksByName() map[string]bpfobj.PipelineScionLink {
	links := make(map[string]bpfobj.PipelineScionLink)
	if p.Instance == nil {
		return links
	}
	for n, l := range p.Config().Links {
		var raw bpfobj.PipelineScionLink
		if p.Map(bpfobj.PipelineMapScionLinks).Lookup(uint32(n), &raw) == nil {
			links[l.Name] = raw
		}
	}
	return links
}

// portPair gives an interface the link whose far end is behind it, so that the programs need no
// lookup for its datagrams. Where there are several the first one is as good as any.
func (p Plane) portPair(ifindex int, old bpfobj.PipelinePort) ([]bpfobj.PipelinePort, error) {
	old.Scion.Seq &^= 1 // odd after a process that died while writing
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
	// The programs read without a lock. They take what they have read only if the number is even,
	// and the same before and after.
	steps := []bpfobj.PipelinePort{old, port, port}
	steps[0].Scion.Seq, steps[1].Scion.Seq, steps[2].Scion.Seq = old.Scion.Seq+1, old.Scion.Seq+1, old.Scion.Seq+2
	return steps, nil
}

// updatePortPair is portPair for an interface that a next hop has come to or gone from. It need not be one of ours.
func (p Plane) updatePortPair(ifindex int) error {
	err := p.EditPort(ifindex, func(port bpfobj.PipelinePort) ([]bpfobj.PipelinePort, error) { return p.portPair(ifindex, port) })
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// pairBytes returns addresses and ports of the link's datagrams as they stand in a packet.
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
