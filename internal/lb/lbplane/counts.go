// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
)

// counts holds the counters of a load balancer.
type counts struct {
	VIPs []vipCounts
	// Flows is the number of flows that the flow table is made for, Used an estimate of the number in it, Memory its size in
	// bytes.
	Flows, Used, Memory uint64
	// Nowhere is set while no interface carries the load balancer. No VIP is served then, and the health of backends is
	// unknown.
	Nowhere bool
}

// vipCounts holds the counters of a VIP.
type vipCounts struct {
	// Name has address, port and protocol: "192.0.2.1:80/tcp".
	Name string
	// Empty is set if no backend takes new flows.
	Empty bool
	// Events counts packets and flows by what has happened to them, as in the type Events.
	Events   map[string]uint64
	Backends []backendCounts
}

// backendCounts holds the counters of a backend of a VIP.
type backendCounts struct {
	Addr string
	// Packets counts packets sent to the backend, Bytes their IP packets as received, Flows the flows that entered the flow
	// table.
	Packets, Bytes, Flows uint64
	// Failing is set if its health checks fail, Resolved if its next hop is known.
	Failing, Resolved bool
}

// count returns the counters of the load balancer of a data plane, nil if it is off there.
func count(i *datapath.Instance) (*counts, error) {
	if OptionsOf(i) == nil {
		return nil, nil
	}
	p := &Plane{inst: i}
	used, err := p.FlowEstimate()
	if err != nil {
		return nil, err
	}
	out := &counts{Flows: uint64(p.Options().Flows), Used: used, Memory: Memory(i), Nowhere: !i.Temporary() && len(i.Attached()) == 0}
	backends, err := p.backendCounts()
	if err != nil {
		return nil, err
	}
	vips, err := p.VIPs()
	if err != nil {
		return nil, err
	}
	for k, v := range vips {
		events, err := p.Events(v.Number)
		if err != nil {
			return nil, err
		}
		out.VIPs = append(out.VIPs, vipCounts{Name: k.String(), Empty: v.Empty, Events: events, Backends: backends[v.Number]})
	}
	slices.SortFunc(out.VIPs, func(a, b vipCounts) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// backendCounts returns the counters of the backends, by the number of their VIP.
func (p *Plane) backendCounts() (map[uint32][]backendCounts, error) {
	all := make(map[uint32][]backendCounts)
	for n := range uint32(p.Options().Backends) {
		b, err := p.Backend(n)
		if err != nil {
			return nil, err
		}
		if !b.Used {
			continue
		}
		sum, err := p.Traffic(n)
		if err != nil {
			return nil, err
		}
		all[b.VIP] = append(all[b.VIP], backendCounts{
			Addr: b.Addr.String(), Packets: sum.Packets, Bytes: sum.Bytes, Flows: sum.Flows, Failing: b.Down, Resolved: b.Hop.Port != 0,
		})
	}
	return all, nil
}

// String returns the VIP as in commands: "192.0.2.1:80/tcp", or "192.0.2.1/udp" for all ports.
func (k VIPKey) String() string {
	protocol := "tcp"
	if k.Proto == unix.IPPROTO_UDP {
		protocol = "udp"
	}
	if k.Port == 0 {
		return fmt.Sprintf("%s/%s", k.Addr, protocol)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(k.Addr, k.Port), protocol)
}
