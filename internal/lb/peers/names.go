// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
)

// names translates between the numbers of this machine, which others do not have, and what is told: services and addresses.
type names struct {
	services map[uint32]lb.Service // by number of the VIP
	vips     map[lb.Service]uint32
	backends map[lbplane.BackendID]backend
	ids      map[backendKey]lbplane.BackendID
	sums     sums
}

type backend struct {
	addr netip.Addr
	// lost is set if its flows move to others.
	lost bool
}

type backendKey struct {
	vip  uint32
	addr netip.Addr
}

// newNames returns the names of a state, which the data plane follows.
func newNames(s *lb.State, p *lbplane.Plane) (*names, error) {
	n := &names{
		services: make(map[uint32]lb.Service), vips: make(map[lb.Service]uint32), backends: make(map[lbplane.BackendID]backend),
		ids: make(map[backendKey]lbplane.BackendID),
	}
	rings := sha256.New()
	vips := slices.SortedFunc(slices.Values(s.VIPs), func(a, b lb.VIP) int { return a.Service.Compare(b.Service) })
	for _, v := range vips {
		n.services[v.Number], n.vips[v.Service] = v.Service, v.Number
		fmt.Fprintf(rings, "%s %s\n", v.Service, v.Hash)
		backends := slices.SortedFunc(slices.Values(v.Backends), func(a, b lb.Backend) int { return a.Addr.Compare(b.Addr) })
		for _, b := range backends {
			in, err := p.Backend(b.ID.Number())
			if err != nil {
				return nil, err
			}
			known := in.Used && in.ID == b.ID
			n.backends[b.ID] = backend{b.Addr, known && in.Down && v.OnFailure == lb.FailMove}
			n.ids[backendKey{v.Number, b.Addr}] = b.ID
			if b.Share() > 0 && known && !in.Down && in.Hop.Port != 0 {
				fmt.Fprintf(rings, " %s %d\n", b.Addr, b.Share())
			}
		}
	}
	o := p.Options()
	seed := sha256.New()
	_ = binary.Write(seed, binary.BigEndian, o.Seed) // writing to a hash cannot fail
	_ = binary.Write(seed, binary.BigEndian, uint64(o.RingSize))
	n.sums = sums{[8]byte(seed.Sum(nil)), [8]byte(rings.Sum(nil))}
	return n, nil
}

// tell returns flows as they are told. Those of VIPs and backends that are gone are left out, and those of backends that lose theirs.
func (n *names) tell(items []item, x *lbplane.Exchange) []toldFlow {
	slices.SortFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.key.VIP(), b.key.VIP()), cmp.Compare(a.held.Backend, b.held.Backend))
	})
	flows := make([]toldFlow, 0, len(items))
	for _, i := range items {
		service, ok := n.services[i.key.VIP()]
		b, known := n.backends[i.held.Backend]
		if !ok || !known || b.lost {
			continue
		}
		client, port := i.key.Client()
		flows = append(flows, toldFlow{service, b.addr, client, port, i.held.Time.State(), x.Idle(i.held.Time)})
	}
	return flows
}
