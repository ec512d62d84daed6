// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"culvert/internal/stats"
)

// BalanceStats implements stats.BalanceSource.
func (i *Instance) BalanceStats() (*stats.Balance, error) {
	if i.Balance() == nil {
		return nil, nil
	}
	p := &BalancePlane{inst: i}
	used, err := p.FlowEstimate()
	if err != nil {
		return nil, err
	}
	out := &stats.Balance{Flows: uint64(p.Options().Flows), Used: used, Memory: i.BalanceMemory(), Nowhere: !i.temporary && len(i.Attached()) == 0}
	backends, err := p.backendStats()
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
		out.VIPs = append(out.VIPs, stats.BalanceVIP{Name: k.String(), Empty: v.Empty, Events: events, Backends: backends[v.Number]})
	}
	slices.SortFunc(out.VIPs, func(a, b stats.BalanceVIP) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// backendStats returns what is counted of backends, by the number of the VIP.
func (p *BalancePlane) backendStats() (map[uint32][]stats.BalanceBackend, error) {
	all := make(map[uint32][]stats.BalanceBackend)
	for n := range uint32(p.Options().Members) {
		m, err := p.Member(n)
		if err != nil {
			return nil, err
		}
		if !m.Used {
			continue
		}
		sum, err := p.Traffic(n)
		if err != nil {
			return nil, err
		}
		all[m.VIP] = append(all[m.VIP], stats.BalanceBackend{
			Addr: m.Addr.String(), Packets: sum.Packets, Bytes: sum.Bytes, Flows: sum.Flows, Failing: m.Down, Resolved: m.Hop.Port != 0,
		})
	}
	return all, nil
}

// String is as people write it: "192.0.2.1:80/tcp", "192.0.2.1/udp" for all ports.
func (k BalanceVIPKey) String() string {
	protocol := "tcp"
	if k.Proto == unix.IPPROTO_UDP {
		protocol = "udp"
	}
	if k.Port == 0 {
		return fmt.Sprintf("%s/%s", k.Addr, protocol)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(k.Addr, k.Port), protocol)
}
