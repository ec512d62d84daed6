// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"culvert/internal/config"
	"culvert/internal/host/trust"
)

// BGPTable is [lb.bgp]: VIPs are announced by BGP.
type BGPTable struct {
	ASN      uint32     `toml:"asn"`
	RouterID netip.Addr `toml:"router_id"`
	// HoldTime, GracefulRestart, Communities and MED are as in announce.Options; communities are written "65001:100".
	HoldTime        string          `toml:"hold_time"`
	GracefulRestart string          `toml:"graceful_restart"`
	Communities     []string        `toml:"communities"`
	MED             uint32          `toml:"med"`
	Neighbor        []NeighborTable `toml:"neighbor"`

	config.Position
}

// NeighborTable is [[lb.bgp.neighbor]]: a router to which VIPs are announced.
type NeighborTable struct {
	Address      netip.Addr `toml:"address"`
	ASN          uint32     `toml:"asn"`
	LocalAddress netip.Addr `toml:"local_address"`
	Password     string     `toml:"password"`
	// PasswordFile is a file with the password, instead of Password. A relative path starts at the configuration file's
	// directory.
	PasswordFile string     `toml:"password_file"`
	TTLSecurity  bool       `toml:"ttl_security"`
	Multihop     uint8      `toml:"multihop"`
	NextHop4     netip.Addr `toml:"next_hop4"`
	NextHop6     netip.Addr `toml:"next_hop6"`

	config.Position
}

// check returns an error for a missing key. Package announce validates the values.
func (g *BGPTable) check(in config.Position) error {
	if g == nil {
		return nil
	}
	g.Position = in.In("bgp")
	var errs config.Errors
	if g.ASN == 0 {
		errs.Add(g.Locate("asn", errors.New("lb.bgp.asn is missing: give the number of your autonomous system")))
	}
	if !g.RouterID.Is4() {
		errs.Add(g.Locate("router_id", errors.New("lb.bgp.router_id is missing or no IPv4 address: give one of this machine")))
	}
	if len(g.Neighbor) == 0 {
		errs.Add(g.Locate("", errors.New("lb.bgp has no neighbor: name a router with [[lb.bgp.neighbor]]")))
	}
	for n := range g.Neighbor {
		r := &g.Neighbor[n]
		r.Position = g.In(fmt.Sprintf("neighbor[%d]", n))
		switch {
		case !r.Address.IsValid():
			errs.Add(r.Locate("", errors.New("address of the neighbor is missing")))
		case r.ASN == 0:
			errs.Add(r.Locate("", fmt.Errorf("neighbor %s: asn is missing", r.Address)))
		}
		errs.Add(r.readPassword())
	}
	return errs.Err()
}

// readPassword sets Password from PasswordFile. Whoever knows the password can end the session, so only root may have access
// to the file.
func (r *NeighborTable) readPassword() error {
	if r.Password != "" {
		if r.PasswordFile != "" {
			return r.Locate("password", fmt.Errorf("neighbor %s: password and password_file: give one of them", r.Address))
		}
		if r.IsRemote("password") {
			return r.Locate("password", fmt.Errorf("neighbor %s: password in a document of the cluster, which each node may read: use password_file", r.Address))
		}
		if err := trust.SecretFile(r.PathOf("password")); err != nil {
			return r.Locate("password", fmt.Errorf("neighbor %s: password in a file that is not secret: %w (or use password_file)", r.Address, err))
		}
		return nil
	}
	if r.PasswordFile == "" {
		return nil
	}
	text, err := trust.Secret(r.Relative("password_file", r.PasswordFile))
	if err != nil {
		return r.Locate("password_file", fmt.Errorf("neighbor %s: reading the password: %w", r.Address, err))
	}
	if r.Password = strings.TrimRight(string(text), "\r\n"); r.Password == "" {
		return r.Locate("password_file", fmt.Errorf("neighbor %s: %s is empty", r.Address, r.PasswordFile))
	}
	return nil
}
