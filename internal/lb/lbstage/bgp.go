// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"culvert/internal/host/hostaddr"
	"culvert/internal/lb/announce"
	"culvert/internal/lb/bgpstate"
)

// compileBGP returns the options of an [lb.bgp] table, nil for a file without one.
func compileBGP(c *BGPTable) (*announce.Options, error) {
	if c == nil {
		return nil, nil
	}
	o := &announce.Options{ASN: c.ASN, RouterID: c.RouterID, MED: c.MED}
	if err := parseDurations(c, map[string]duration{"hold_time": {c.HoldTime, &o.HoldTime}}); err != nil {
		return nil, err
	}
	var err error
	if o.GracefulRestart, err = restartTime(c.GracefulRestart); err != nil {
		return nil, c.Locate("graceful_restart", err)
	}
	for _, text := range c.Communities {
		community, err := parseCommunity(text)
		if err != nil {
			return nil, c.Locate("communities", err)
		}
		o.Communities = append(o.Communities, community)
	}
	for _, r := range c.Neighbor {
		o.Neighbors = append(o.Neighbors, announce.Neighbor{
			Address: r.Address, ASN: r.ASN, LocalAddress: r.LocalAddress, Password: r.Password, Multihop: r.Multihop, TTLSecurity: r.TTLSecurity,
			NextHop4: r.NextHop4, NextHop6: r.NextHop6,
		})
	}
	if err := o.Check(); err != nil {
		return nil, c.Locate("", err)
	}
	return o, nil
}

// noteBGP notes the local addresses of BGP sessions that this host does not have: no session comes up until it has.
func (p *Plan) noteBGP(note func(error)) {
	if p.bgp == nil {
		return
	}
	for n, neighbor := range p.bgp.Neighbors {
		if !neighbor.LocalAddress.IsValid() {
			continue
		}
		elsewhere, err := hostaddr.Elsewhere([]netip.AddrPort{netip.AddrPortFrom(neighbor.LocalAddress, 0)})
		if err == nil && len(elsewhere) > 0 {
			err = fmt.Errorf("neighbor %s: this host does not have local_address %s: no session comes up until it has",
				neighbor.Address, neighbor.LocalAddress)
		}
		if err != nil {
			note(p.file.BGP.Neighbor[n].Locate("local_address", err))
		}
	}
}

// restartTime parses graceful_restart: how long neighbors keep the routes of a process that has ended, 0 for not at all.
func restartTime(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > announce.MaxRestart || d%time.Second != 0 {
		return 0, fmt.Errorf("graceful_restart = %q: write whole seconds up to %d, as 60s, or 0s for none", text, announce.MaxRestart/time.Second)
	}
	return d, nil
}

// parseCommunity parses a community such as "65001:100".
func parseCommunity(text string) (uint32, error) {
	upper, lower, _ := strings.Cut(text, ":")
	u, err := strconv.ParseUint(upper, 10, 16)
	l, err2 := strconv.ParseUint(lower, 10, 16)
	if errors.Join(err, err2) != nil {
		return 0, fmt.Errorf("%q is no community: write it as 65001:100", text)
	}
	return uint32(u<<16 | l), nil
}

func sessions(speaker *announce.Speaker) []bgpstate.Session {
	var all []bgpstate.Session
	for _, n := range speaker.Neighbors() {
		one := bgpstate.Session{
			Neighbor: n.Address, ASN: n.ASN, State: n.State, Since: n.Since, Announced: append([]netip.Prefix{}, n.Prefixes...), Families: []string{}, Error: n.LastError,
		}
		if n.Carries4 {
			one.Families = append(one.Families, bgpstate.FamilyIPv4)
		}
		if n.Carries6 {
			one.Families = append(one.Families, bgpstate.FamilyIPv6)
		}
		all = append(all, one)
	}
	return all
}
