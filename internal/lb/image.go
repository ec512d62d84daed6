// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"culvert/internal/datapath"
	"culvert/internal/lb/maglev"
)

// way is how packets get to an address.
type way struct {
	// hop has no port while there is no way.
	hop datapath.BalanceHop
	// source is the address that this host sends from, where none is configured.
	source netip.Addr
}

// live is what the state does not say, because it comes and goes.
type live struct {
	ways map[netip.Addr]way
	down map[datapath.BalanceOwner]bool
}

// image is what the programs' maps hold.
type image struct {
	vips    map[datapath.BalanceVIPKey]datapath.BalanceVIP
	rings   map[uint32][]place // by number of the VIP
	members map[uint32]datapath.BalanceMember
	ids     map[uint32]map[string]datapath.BalanceOwner
	vlans   map[datapath.BalanceNamedVLAN]bool
}

// place is a backend in a ring.
type place struct {
	addr   netip.Addr
	weight uint32
	owner  datapath.BalanceOwner
}

// Share is the weight that new flows go by.
func (b *Backend) Share() uint32 {
	if b.Drained {
		return 0
	}
	return b.Weight
}

// Overhead is how many bytes longer packets to the backend become.
func (b *Backend) Overhead() int {
	return datapath.BalanceMember{Addr: b.Addr, Encap: encaps[b.Encap]}.Overhead()
}

// source is that of outer headers to a backend, invalid if there is none.
func (s *State) source(b *Backend, w way) netip.Prefix {
	configured := s.Source6
	if b.Addr.Is4() {
		configured = s.Source4
	}
	switch {
	case b.Encap == EncapL2:
		return netip.Prefix{}
	case configured.IsValid():
		return configured
	case w.source.IsValid() && w.source.Is4() == b.Addr.Is4():
		return netip.PrefixFrom(w.source, w.source.BitLen())
	}
	return netip.Prefix{}
}

// obstacle says why a backend gets no flows, "" if nothing keeps it from them but its weight.
func (s *State) obstacle(v *VIP, b *Backend, l live) string {
	w := l.ways[b.Addr]
	switch {
	case v.Check != nil && l.down[b.Owner]:
		return "its checks fail"
	case w.hop.Port == 0:
		return "there is no way to it"
	case b.Encap != EncapL2 && !s.source(b, w).IsValid():
		return "there is no source address to send from"
	}
	return ""
}

// takes tells whether a VIP has somebody who takes new flows.
func (s *State) takes(v *VIP, l live) bool {
	return slices.ContainsFunc(v.Backends, func(b Backend) bool { return b.Share() > 0 && s.obstacle(v, &b, l) == "" })
}

var encaps = map[string]datapath.BalanceEncap{EncapIPIP: datapath.BalanceIPIP, EncapGUE: datapath.BalanceGUE, EncapL2: datapath.BalanceL2}

// image derives what the programs are to know.
func (s *State) image(l live) image {
	i := image{
		vips:    make(map[datapath.BalanceVIPKey]datapath.BalanceVIP),
		rings:   make(map[uint32][]place),
		members: make(map[uint32]datapath.BalanceMember),
		ids:     make(map[uint32]map[string]datapath.BalanceOwner),
		vlans:   s.namedVLANs(),
	}
	for _, v := range s.VIPs {
		var ring []place
		for _, b := range v.Backends {
			w := l.ways[b.Addr]
			i.members[b.Owner.Number()] = datapath.BalanceMember{
				Owner: b.Owner, VIP: v.Number, Addr: b.Addr, Encap: encaps[b.Encap], GUEPort: b.GUEPort, Source: s.source(&b, w),
				Down: v.Check != nil && l.down[b.Owner], Used: true, Hop: w.hop,
			}
			if b.Share() > 0 && s.obstacle(&v, &b, l) == "" {
				ring = append(ring, place{b.Addr, b.Share(), b.Owner})
			}
			if id, err := hex.DecodeString(b.ServerID); err == nil && len(id) > 0 {
				if i.ids[v.Number] == nil {
					i.ids[v.Number] = make(map[string]datapath.BalanceOwner)
				}
				i.ids[v.Number][string(id)] = b.Owner
			}
		}
		slices.SortFunc(ring, func(a, b place) int { return a.addr.Compare(b.addr) })
		i.rings[v.Number] = ring
		i.vips[v.Service.Key()] = datapath.BalanceVIP{
			Number: v.Number, Source: v.Hash == HashSource, SourcePort: v.Hash == HashSourcePort,
			Move: v.OnFailure == FailMove, Empty: len(ring) == 0, ServerID: v.ServerID, IDConfig: v.IDConfig,
		}
	}
	return i
}

// plane is the data plane as far as it is written.
type plane interface {
	SetMember(datapath.BalanceMember) error
	SetRing(vip uint32, ring []datapath.BalanceOwner) error
	DeleteRing(vip uint32) error
	SetVIP(datapath.BalanceVIPKey, datapath.BalanceVIP) error
	DeleteVIP(datapath.BalanceVIPKey) error
	SetServerID(vip uint32, id []byte, owner datapath.BalanceOwner) error
	DeleteServerID(vip uint32, id []byte) error
	SetNamedVLAN(datapath.BalanceNamedVLAN) error
	DeleteNamedVLAN(datapath.BalanceNamedVLAN) error
}

// writeIDs says who has which server ID.
func writeIDs(p plane, old, now map[uint32]map[string]datapath.BalanceOwner) error {
	for _, vip := range slices.Sorted(maps.Keys(now)) {
		for _, id := range slices.Sorted(maps.Keys(now[vip])) {
			if owner := now[vip][id]; old[vip][id] != owner {
				if err := p.SetServerID(vip, []byte(id), owner); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// dropIDs takes those out that nobody has any more.
func dropIDs(p plane, old, now map[uint32]map[string]datapath.BalanceOwner) error {
	for _, vip := range slices.Sorted(maps.Keys(old)) {
		for _, id := range slices.Sorted(maps.Keys(old[vip])) {
			if _, stays := now[vip][id]; !stays {
				if err := p.DeleteServerID(vip, []byte(id)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// write takes the programs from an image to another one, so that a packet meets nothing half made: who is named is there
// first, and goes last.
func write(p plane, size int, old, now image) error {
	for _, n := range slices.Sorted(maps.Keys(now.members)) {
		if m := now.members[n]; old.members[n] != m {
			if err := p.SetMember(m); err != nil {
				return err
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(now.rings)) {
		before, known := old.rings[n]
		if places := now.rings[n]; len(places) > 0 && !(known && slices.Equal(before, places)) {
			if err := setRing(p, size, n, places); err != nil {
				return err
			}
		}
	}
	if err := writeIDs(p, old.ids, now.ids); err != nil {
		return err
	}
	if err := writeVLANs(p, old.vlans, now.vlans); err != nil {
		return err
	}
	for _, k := range sortedKeys(now.vips) {
		if before, known := old.vips[k]; !known || before != now.vips[k] {
			if err := p.SetVIP(k, now.vips[k]); err != nil {
				return err
			}
		}
	}
	for _, k := range sortedKeys(old.vips) {
		if _, stays := now.vips[k]; !stays {
			if err := p.DeleteVIP(k); err != nil {
				return err
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(old.rings)) {
		if len(now.rings[n]) == 0 {
			if err := p.DeleteRing(n); err != nil {
				return err
			}
		}
	}
	if err := dropIDs(p, old.ids, now.ids); err != nil {
		return err
	}
	for _, n := range slices.Sorted(maps.Keys(old.members)) {
		if _, stays := now.members[n]; !stays {
			if err := p.SetMember(datapath.BalanceMember{Owner: old.members[n].Owner}); err != nil {
				return err
			}
		}
	}
	return nil
}

func sortedKeys(vips map[datapath.BalanceVIPKey]datapath.BalanceVIP) []datapath.BalanceVIPKey {
	return slices.SortedFunc(maps.Keys(vips), func(a, b datapath.BalanceVIPKey) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
	})
}

func setRing(p plane, size int, vip uint32, places []place) error {
	backends := make([]maglev.Backend, len(places))
	for n, b := range places {
		backends[n] = maglev.Backend{Key: b.addr.AsSlice(), Weight: b.weight}
	}
	table, err := maglev.Table(size, backends)
	if err != nil {
		return fmt.Errorf("making the ring of a VIP: %w", err)
	}
	ring := make([]datapath.BalanceOwner, size)
	for n, at := range table {
		ring[n] = places[at].owner
	}
	return p.SetRing(vip, ring)
}
