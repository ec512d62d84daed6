// SPDX-License-Identifier: Apache-2.0

package routeplane

import (
	"fmt"
	"net/netip"

	"culvert/internal/bpfobj"
)

// Neighbors lists the neighbors on connected networks with the numbers of their next hops.
func (p *Plane) Neighbors() (map[Neighbor]uint32, error) {
	all := make(map[Neighbor]uint32)
	var (
		key    bpfobj.PipelineRouteNeighbor
		number uint32
	)
	m := p.inst.Map(bpfobj.PipelineMapRouteNeighbors)
	it := m.Iterate()
	for it.Next(&key, &number) {
		var b [16]byte
		for n, w := range key.Addr.W {
			bpfobj.Native.PutUint32(b[4*n:], w)
		}
		all[Neighbor{Dev: int(key.Dev), Addr: netip.AddrFrom16(b).Unmap()}] = number
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("listing the neighbors of %s: %w", p.inst.Name(), err)
	}
	return all, nil
}

// Own4 reports whether the programs treat an IPv4 address as one of this host.
func (p *Plane) Own4(addr netip.Addr) (bool, error) {
	m := p.inst.Map(bpfobj.PipelineMapRouteOwn4)
	var value uint32
	b := addr.As4()
	err := m.Lookup(bpfobj.Native.Uint32(b[:]), &value)
	switch {
	case bpfobj.NotExist(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("looking for address %s of %s: %w", addr, p.inst.Name(), err)
	}
	return true, nil
}

// String is the action's name in lower case.
func (a Action) String() string {
	names := [...]string{
		"ask", "forward", "connected", "local", "none", "unreachable", "prohibit", "blackhole", "resolve", "elsewhere",
	}
	if int(a) < len(names) {
		return names[a]
	}
	return fmt.Sprint(uint8(a))
}
