// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net"
)

// fillConfig writes the maps that are fixed by the configuration. A link that was there before
// keeps its next hop and its state.
func (i *Instance) fillConfig(old *Instance) error {
	kept := old.linksByName()
	for n, l := range i.meta.Config.Links {
		ip, ipSum, l4Sum := outerHeader(l.Local, l.Remote)
		raw := pipelineScionLink{
			Ip:       ip,
			IpSum:    ipSum,
			L4Sum:    l4Sum,
			Counters: uint32(i.meta.Counters[l.Name]),
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
		if err := i.maps[pipelineMapScionLinks].Put(uint32(n), raw); err != nil {
			return fmt.Errorf("writing link %s: %w", l.Name, err)
		}
		if err := i.fillPair(n, l); err != nil {
			return err
		}
	}
	for _, f := range i.meta.Config.Interfaces {
		raw := pipelineScionIface{Link: uint32(f.Link) + 1, Type: uint32(f.Type)}
		if err := i.maps[pipelineMapScionIfaces].Put(uint32(f.ID), raw); err != nil {
			return fmt.Errorf("writing interface %d: %w", f.ID, err)
		}
	}
	return nil
}

// fillPair writes what a datagram of the link looks like on its way in.
func (i *Instance) fillPair(n int, l Link) error {
	if l.Scope == ScopeInternal {
		return nil
	}
	in := pipelineScionIngress{
		Link:     uint32(n),
		Counters: uint32(i.meta.Counters[l.Name]),
		Ifid:     l.IfID,
		Scope:    uint8(l.Scope),
		Type:     uint8(i.meta.Config.linkType(l.IfID)),
	}
	src, dst := addrWords(l.Remote.Addr()), addrWords(l.Local.Addr())
	var err error
	if l.Local.Addr().Is4() {
		err = i.maps[pipelineMapScionPairs4].Put(pipelineScionPair4{
			Saddr: src[3],
			Daddr: dst[3],
			Sport: wire16(l.Remote.Port()),
			Dport: wire16(l.Local.Port()),
		}, in)
	} else {
		pair := pipelineScionPair6{
			Sport: wire16(l.Remote.Port()),
			Dport: wire16(l.Local.Port()),
		}
		pair.Saddr.W, pair.Daddr.W = src, dst
		err = i.maps[pipelineMapScionPairs6].Put(pair, in)
	}
	if err != nil {
		return fmt.Errorf("writing the addresses of link %s: %w", l.Name, err)
	}
	return nil
}

func (i *Instance) linksByName() map[string]pipelineScionLink {
	links := make(map[string]pipelineScionLink)
	if i == nil {
		return links
	}
	for n, l := range i.meta.Config.Links {
		var raw pipelineScionLink
		if i.maps[pipelineMapScionLinks].Lookup(uint32(n), &raw) == nil {
			links[l.Name] = raw
		}
	}
	return links
}

func (i *Instance) fillPorts(ports []*net.Interface) error {
	for _, p := range ports {
		raw := pipelinePort{Slot: uint32(i.meta.Ports[p.Name]) + 1}
		if len(p.HardwareAddr) == 6 {
			for n := range raw.Mac {
				raw.Mac[n] = ne.Uint16(p.HardwareAddr[2*n:])
			}
		}
		if err := i.maps[pipelineMapPorts].Put(uint32(p.Index), raw); err != nil {
			return fmt.Errorf("writing interface %s: %w", p.Name, err)
		}
	}
	return nil
}

const (
	// puntRate is how many packets a second one reason may take to the slow path. It leaves the
	// reference data plane room for all reasons at once.
	puntRate = 10_000
	// ownRate is for packets that no one else can carry: they are traffic, not mistakes.
	ownRate = 100_000
	// puntBurst is how far ahead of its rate a reason may be, ns; longer than a clock tick.
	puntBurst = 100_000_000
)

// fillLimits sets how fast each reason may use the slow path.
func (i *Instance) fillLimits() error {
	for n, r := range Reasons() {
		if r.Verdict != VerdictPunt {
			continue
		}
		rate := uint64(puntRate)
		switch pipelineReason(n) {
		case pipelineReasonPUNT_SCION_BFD, pipelineReasonPUNT_SCION_NEXT_HOP,
			pipelineReasonPUNT_SCION_MTU, pipelineReasonPUNT_SCION_CHECKSUM:
			rate = ownRate
		}
		l := pipelineLimit{Interval: 1e9 / rate, Burst: puntBurst}
		if err := i.maps[pipelineMapLimits].Put(uint32(n), l); err != nil {
			return fmt.Errorf("writing the limit of %s: %w", r.Name, err)
		}
	}
	return nil
}
