// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net/netip"
)

// BalanceBGP announces VIPs by BGP.
type BalanceBGP struct {
	ASN      uint32     `toml:"asn"`
	RouterID netip.Addr `toml:"router_id"`
	// HoldTime, GracefulRestart, Communities and MED are as in announce.Options; communities are written "65001:100".
	HoldTime        string            `toml:"hold_time"`
	GracefulRestart string            `toml:"graceful_restart"`
	Communities     []string          `toml:"communities"`
	MED             uint32            `toml:"med"`
	Neighbor        []BalanceNeighbor `toml:"neighbor"`

	place
}

// BalanceNeighbor is a router that is told.
type BalanceNeighbor struct {
	Address      netip.Addr `toml:"address"`
	ASN          uint32     `toml:"asn"`
	LocalAddress netip.Addr `toml:"local_address"`
	Password     string     `toml:"password"`
	Multihop     uint8      `toml:"multihop"`
	NextHop4     netip.Addr `toml:"next_hop4"`
	NextHop6     netip.Addr `toml:"next_hop6"`

	place
}

// check refuses what lacks something. What values mean is checked by who speaks BGP.
func (g *BalanceBGP) check(in place) error {
	if g == nil {
		return nil
	}
	g.place = place{in.path, in.document, "balance.bgp"}
	switch {
	case g.ASN == 0:
		return g.Locate("asn", errors.New("balance.bgp.asn is missing: give the number of your autonomous system"))
	case !g.RouterID.Is4():
		return g.Locate("router_id", errors.New("balance.bgp.router_id is missing or no IPv4 address: give one of this machine"))
	case len(g.Neighbor) == 0:
		return g.Locate("", errors.New("balance.bgp has no neighbor: name a router with [[balance.bgp.neighbor]]"))
	}
	for n := range g.Neighbor {
		r := &g.Neighbor[n]
		r.place = place{in.path, in.document, fmt.Sprintf("balance.bgp.neighbor[%d]", n)}
		switch {
		case !r.Address.IsValid():
			return r.Locate("", errors.New("address of the neighbor is missing"))
		case r.ASN == 0:
			return r.Locate("", fmt.Errorf("neighbor %s: asn is missing", r.Address))
		}
	}
	return nil
}
