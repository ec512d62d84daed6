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

// route is the resolved route to an address.
type route struct {
	// hop is the next hop; its Port is 0 while it is not known.
	hop lbplane.Hop
	// source is the address that this host sends from. It is used if no source is configured.
	source netip.Addr
}

// live has what the state does not contain because it changes by itself: routes and the health of backends.
type live struct {
	routes map[netip.Addr]route
	down   map[lbplane.BackendID]bool
}

// image is the contents of the programs' maps.
type image struct {
	vips     map[lbplane.VIPKey]lbplane.VIP
	rings    map[uint32][]ringEntry // by number of the VIP
	backends map[uint32]lbplane.Backend
	ids      map[uint32]map[string]lbplane.BackendID
	vlans    map[lbplane.NamedVLAN]bool
}

// ringEntry is a backend in a ring.
type ringEntry struct {
	addr    netip.Addr
	weight  uint32
	backend lbplane.BackendID
}

// Share returns the weight by which new flows are assigned: 0 for a drained backend.
func (b *Backend) Share() uint32 {
	if b.Drained {
		return 0
	}
	return b.Weight
}

// Overhead returns the length in bytes of the headers that are added to packets to the backend.
func (b *Backend) Overhead() int {
	return lbplane.Backend{Addr: b.Addr, Encap: encaps[b.Encap]}.Overhead()
}

// source returns the source of outer headers to a backend. It is invalid if there is none.
func (s *State) source(b *Backend, r route) netip.Prefix {
	configured := s.Source6
	if b.Addr.Is4() {
		configured = s.Source4
	}
	switch {
	case b.Encap == EncapL2:
		return netip.Prefix{}
	case configured.IsValid():
		return configured
	case r.source.IsValid() && r.source.Is4() == b.Addr.Is4():
		return netip.PrefixFrom(r.source, r.source.BitLen())
	}
	return netip.Prefix{}
}

// obstacle returns why a backend can get no flows, "" if it can. Its weight does not matter.
func (s *State) obstacle(v *VIP, b *Backend, l live) string {
	r := l.routes[b.Addr]
	switch {
	case v.Check != nil && l.down[b.ID]:
		return "its checks fail"
	case r.hop.Port == 0:
		return "its next hop is not known"
	case b.Encap != EncapL2 && !s.source(b, r).IsValid():
		return "there is no source address to send from"
	}
	return ""
}

// serves returns whether a VIP has a backend for new flows.
func (s *State) serves(v *VIP, l live) bool {
	return slices.ContainsFunc(v.Backends, func(b Backend) bool { return b.Share() > 0 && s.obstacle(v, &b, l) == "" })
}

var encaps = map[string]lbplane.Encap{EncapIPIP: lbplane.IPIP, EncapGUE: lbplane.GUE, EncapL2: lbplane.L2}

// image returns the contents of the programs' maps for the state.
func (s *State) image(l live) image {
	i := image{
		vips:     make(map[lbplane.VIPKey]lbplane.VIP),
		rings:    make(map[uint32][]ringEntry),
		backends: make(map[uint32]lbplane.Backend),
		ids:      make(map[uint32]map[string]lbplane.BackendID),
		vlans:    s.namedVLANs(),
	}
	for _, v := range s.VIPs {
		var ring []ringEntry
		for _, b := range v.Backends {
			r := l.routes[b.Addr]
			i.backends[b.ID.Number()] = lbplane.Backend{
				ID: b.ID, VIP: v.Number, Addr: b.Addr, Encap: encaps[b.Encap], GUEPort: b.GUEPort, Source: s.source(&b, r),
				Down: v.Check != nil && l.down[b.ID], Used: true, Hop: r.hop,
			}
			if b.Share() > 0 && s.obstacle(&v, &b, l) == "" {
				ring = append(ring, ringEntry{b.Addr, b.Share(), b.ID})
			}
			if id, err := hex.DecodeString(b.ServerID); err == nil && len(id) > 0 {
				if i.ids[v.Number] == nil {
					i.ids[v.Number] = make(map[string]lbplane.BackendID)
				}
				i.ids[v.Number][string(id)] = b.ID
			}
		}
		slices.SortFunc(ring, func(a, b ringEntry) int { return a.addr.Compare(b.addr) })
		i.rings[v.Number] = ring
		i.vips[v.Service.Key()] = lbplane.VIP{
			Number: v.Number, Source: v.Hash == HashSource, SourcePort: v.Hash == HashSourcePort,
			Move: v.OnFailure == FailMove, Empty: len(ring) == 0, ServerID: v.ServerID, IDConfig: v.IDConfig,
		}
	}
	return i
}

// plane has the methods of *lbplane.Plane that write.
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

// writeIDs writes the server IDs that differ.
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

// deleteIDs deletes the server IDs that no backend has any more.
func deleteIDs(p plane, old, now map[uint32]map[string]lbplane.BackendID) error {
	for _, vip := range slices.Sorted(maps.Keys(old)) {
		for _, id := range slices.Sorted(maps.Keys(old[vip])) {
			if _, kept := now[vip][id]; !kept {
				if err := p.DeleteServerID(vip, []byte(id)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// write changes the programs' maps from one image to another. Packets are processed meanwhile, so what others refer to is
// written first and deleted last: backends, then rings, then VIPs.
func write(p plane, size int, old, now image) error {
	for _, n := range slices.Sorted(maps.Keys(now.backends)) {
		if b := now.backends[n]; old.backends[n] != b {
			if err := p.SetBackend(b); err != nil {
				return err
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(now.rings)) {
		before, known := old.rings[n]
		if ring := now.rings[n]; len(ring) > 0 && !(known && slices.Equal(before, ring)) {
			if err := setRing(p, size, n, ring); err != nil {
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
		if _, kept := now.vips[k]; !kept {
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
	if err := deleteIDs(p, old.ids, now.ids); err != nil {
		return err
	}
	for _, n := range slices.Sorted(maps.Keys(old.backends)) {
		if _, kept := now.backends[n]; !kept {
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

func setRing(p plane, size int, vip uint32, entries []ringEntry) error {
	backends := make([]maglev.Backend, len(entries))
	for n, b := range entries {
		backends[n] = maglev.Backend{Key: b.addr.AsSlice(), Weight: b.weight}
	}
	table, err := maglev.Table(size, backends)
	if err != nil {
		return fmt.Errorf("making the ring of a VIP: %w", err)
	}
	ring := make([]lbplane.BackendID, size)
	for n, at := range table {
		ring[n] = entries[at].backend
	}
	return p.SetRing(vip, ring)
}
