// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/maglev"
)

// way is how packets get to an address.
type way struct {
	// hop has no port while there is no way.
	hop lbplane.Hop
	// source is the address that this host sends from, where none is configured.
	source netip.Addr
}

// live is what the state does not say, because it comes and goes.
type live struct {
	ways map[netip.Addr]way
	down map[lbplane.BackendID]bool
}

// image is what the programs' maps hold.
type image struct {
	vips     map[lbplane.VIPKey]lbplane.VIP
	rings    map[uint32][]place // by number of the VIP
	backends map[uint32]lbplane.Backend
	ids      map[uint32]map[string]lbplane.BackendID
	vlans    map[lbplane.NamedVLAN]bool
}

// place is a backend in a ring.
type place struct {
	addr    netip.Addr
	weight  uint32
	backend lbplane.BackendID
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
	return lbplane.Backend{Addr: b.Addr, Encap: encaps[b.Encap]}.Overhead()
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
	case v.Check != nil && l.down[b.ID]:
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

var encaps = map[string]lbplane.Encap{EncapIPIP: lbplane.IPIP, EncapGUE: lbplane.GUE, EncapL2: lbplane.L2}

// image derives what the programs are to know.
func (s *State) image(l live) image {
	i := image{
		vips:     make(map[lbplane.VIPKey]lbplane.VIP),
		rings:    make(map[uint32][]place),
		backends: make(map[uint32]lbplane.Backend),
		ids:      make(map[uint32]map[string]lbplane.BackendID),
		vlans:    s.namedVLANs(),
	}
	for _, v := range s.VIPs {
		var ring []place
		for _, b := range v.Backends {
			w := l.ways[b.Addr]
			i.backends[b.ID.Number()] = lbplane.Backend{
				ID: b.ID, VIP: v.Number, Addr: b.Addr, Encap: encaps[b.Encap], GUEPort: b.GUEPort, Source: s.source(&b, w),
				Down: v.Check != nil && l.down[b.ID], Used: true, Hop: w.hop,
			}
			if b.Share() > 0 && s.obstacle(&v, &b, l) == "" {
				ring = append(ring, place{b.Addr, b.Share(), b.ID})
			}
			if id, err := hex.DecodeString(b.ServerID); err == nil && len(id) > 0 {
				if i.ids[v.Number] == nil {
					i.ids[v.Number] = make(map[string]lbplane.BackendID)
				}
				i.ids[v.Number][string(id)] = b.ID
			}
		}
		slices.SortFunc(ring, func(a, b place) int { return a.addr.Compare(b.addr) })
		i.rings[v.Number] = ring
		i.vips[v.Service.Key()] = lbplane.VIP{
			Number: v.Number, Source: v.Hash == HashSource, SourcePort: v.Hash == HashSourcePort,
			Move: v.OnFailure == FailMove, Empty: len(ring) == 0, ServerID: v.ServerID, IDConfig: v.IDConfig,
		}
	}
	return i
}

// plane is the data plane as far as it is written.
type plane interface {
	SetBackend(lbplane.Backend) error
	SetRing(vip uint32, ring []lbplane.BackendID) error
	DeleteRing(vip uint32) error
	SetVIP(lbplane.VIPKey, lbplane.VIP) error
	DeleteVIP(lbplane.VIPKey) error
	SetServerID(vip uint32, id []byte, backend lbplane.BackendID) error
	DeleteServerID(vip uint32, id []byte) error
	SetNamedVLAN(lbplane.NamedVLAN) error
	DeleteNamedVLAN(lbplane.NamedVLAN) error
}

// writeIDs says who has which server ID.
func writeIDs(p plane, old, now map[uint32]map[string]lbplane.BackendID) error {
	for _, vip := range slices.Sorted(maps.Keys(now)) {
		for _, id := range slices.Sorted(maps.Keys(now[vip])) {
			if backend := now[vip][id]; old[vip][id] != backend {
				if err := p.SetServerID(vip, []byte(id), backend); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// dropIDs takes those out that nobody has any more.
func dropIDs(p plane, old, now map[uint32]map[string]lbplane.BackendID) error {
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
	for _, n := range slices.Sorted(maps.Keys(now.backends)) {
		if m := now.backends[n]; old.backends[n] != m {
			if err := p.SetBackend(m); err != nil {
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
	for _, n := range slices.Sorted(maps.Keys(old.backends)) {
		if _, stays := now.backends[n]; !stays {
			if err := p.SetBackend(lbplane.Backend{ID: old.backends[n].ID}); err != nil {
				return err
			}
		}
	}
	return nil
}

func sortedKeys(vips map[lbplane.VIPKey]lbplane.VIP) []lbplane.VIPKey {
	return slices.SortedFunc(maps.Keys(vips), func(a, b lbplane.VIPKey) int {
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
	ring := make([]lbplane.BackendID, size)
	for n, at := range table {
		ring[n] = places[at].backend
	}
	return p.SetRing(vip, ring)
}
