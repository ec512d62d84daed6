// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"fmt"
	"net/netip"

	"culvert/internal/datapath"
	"culvert/internal/lb"
	"culvert/internal/lb/announce"
	"culvert/internal/lb/lbplane"
	"culvert/internal/stage"
)

// Changes implements stage.Differ.
func (p *Plan) Changes(former stage.Plan, running *datapath.Instance) []string {
	f, ok := former.(*Plan)
	if !ok {
		f = new(Plan)
	}
	var c stage.Changes
	if p.file != nil && f.file != nil {
		optionChanges(&c, &f.options, &p.options)
		c.Value("lb.unclaimed:", or(f.file.Unclaimed, "reject"), or(p.file.Unclaimed, "reject"))
		c.Value("lb.source4:", prefix(f.state.Source4), prefix(p.state.Source4))
		c.Value("lb.source6:", prefix(f.state.Source6), prefix(p.state.Source6))
		p.seedChanges(&c, f)
	}
	allVIPChanges(&c, f.state.VIPs, p.state.VIPs)
	sourceChanges(&c, f.sources, p.sources)
	if running != nil {
		p.takesBack(&c, running)
	}
	bgpChanges(&c, f.bgp, p.bgp)
	peersChanges(&c, f.peers, p.peers)
	return c
}

// takesBack adds lines for the changes by hand that the plan takes back on a running data plane. What keeps it from being read, or
// contradicts the plan, is an error of Check, and has no line.
func (p *Plan) takesBack(c *stage.Changes, inst *datapath.Instance) {
	now, _, err := running(inst)
	if err != nil {
		return
	}
	merged, err := lb.Merge(now, p.state)
	if err != nil {
		return
	}
	var really stage.Changes
	allVIPChanges(&really, configured(now.VIPs), configured(merged.VIPs))
	c.Others(really, stage.ByHand)
}

func allVIPChanges(c *stage.Changes, was, is []lb.VIP) {
	stage.Named(c, "VIP", was, is, func(v lb.VIP) lb.Service { return v.Service }, vipChanges)
}

func optionChanges(c *stage.Changes, was, is *lbplane.Options) {
	for _, o := range []struct {
		key     string
		was, is any
	}{
		{"ring_size", was.RingSize, is.RingSize}, {"flows", was.Flows, is.Flows}, {"insert_rate", was.InsertRate, is.InsertRate},
		{"vips", was.VIPs, is.VIPs}, {"backends", was.Backends, is.Backends}, {"tcp_timeout", was.IdleTCP, is.IdleTCP},
		{"udp_timeout", was.IdleUDP, is.IdleUDP}, {"syn_timeout", was.IdleNew, is.IdleNew},
	} {
		c.Value("lb."+o.key+":", o.was, o.is)
	}
}

func prefix(p interface {
	IsValid() bool
	String() string
}) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

// seedChanges adds a line if the rings would have another key than with the former plan, or if the file with their seed is gone.
func (p *Plan) seedChanges(c *stage.Changes, former *Plan) {
	text, err := p.seedText()
	changed := false
	switch started := former.options.Seed != [6]uint32{}; {
	case err != nil: // CheckHost reports it
	case !started:
		changed = p.file.Seed != former.file.Seed
	case text == "" && former.machineSeed() != "":
		c.Add("lb.seed: %s is gone: the seed in use stays and is written again", SeedPath())
	default:
		changed = text == "" || seedWords(text) != former.options.Seed
	}
	if changed {
		c.Add("lb.seed changed: flows that are not in the flow table meet other backends")
	}
}

func vipChanges(c *stage.Changes, name string, was, is lb.VIP) {
	c.Value(name+": hash", was.Hash, is.Hash)
	c.Value(name+": on_failure", was.OnFailure, is.OnFailure)
	c.Value(name+": quic_server_id", was.ServerID, is.ServerID)
	c.Value(name+": quic_config", was.IDConfig, is.IDConfig)
	c.Value(name+": vlans", was.VLANs, is.VLANs)
	switch {
	case was.Check == nil && is.Check != nil:
		c.Add("%s: check %s added", name, is.Check.Type)
	case was.Check != nil && is.Check == nil:
		c.Add("%s: check removed", name)
	case was.Check != nil:
		checkChanges(c, name+": check ", was.Check, is.Check)
	}
	stage.Named(c, name+": backend", was.Backends, is.Backends, func(b lb.Backend) netip.Addr { return b.Addr }, backendChanges)
}

func backendChanges(c *stage.Changes, name string, was, is lb.Backend) {
	c.Value(name+": weight", was.Weight, is.Weight)
	c.Value(name+": encapsulation", was.Encap, is.Encap)
	c.Value(name+": gue_port", was.GUEPort, is.GUEPort)
	c.Value(name+": server_id", was.ServerID, is.ServerID)
}

func checkChanges(c *stage.Changes, name string, was, is *lb.Check) {
	c.Value(name+"type", was.Type, is.Type)
	c.Value(name+"port", was.Port, is.Port)
	c.Value(name+"interval", was.Interval, is.Interval)
	c.Value(name+"timeout", was.Timeout, is.Timeout)
	c.Value(name+"rise", was.Rise, is.Rise)
	c.Value(name+"fall", was.Fall, is.Fall)
	c.Value(name+"path", was.Path, is.Path)
	c.Value(name+"host", was.Host, is.Host)
	c.Value(name+"status", was.Status, is.Status)
	c.Hidden(name+"send", was.Send, is.Send)
	c.Hidden(name+"expect", was.Expect, is.Expect)
}

// again is added to what a BGP session can only say at its beginning.
const (
	again    = " (its session begins again)"
	allAgain = " (all sessions begin again)"
)

func bgpChanges(c *stage.Changes, was, is *announce.Options) {
	if was == nil {
		was = new(announce.Options)
	}
	if is == nil {
		is = new(announce.Options)
	}
	if len(was.Neighbors) > 0 && len(is.Neighbors) > 0 {
		sharedChanges(c, was, is)
	}
	stage.Named(c, "BGP neighbor", was.Neighbors, is.Neighbors, func(n announce.Neighbor) netip.Addr { return n.Address }, neighborChanges)
}

func sharedChanges(c *stage.Changes, was, is *announce.Options) {
	of := func(o *announce.Options) *announce.Options {
		all := *o
		if all.HoldTime == 0 {
			all.HoldTime = announce.DefaultHoldTime
		}
		return &all
	}
	was, is = of(was), of(is)
	noted(c, allAgain, func(c *stage.Changes) {
		c.Value("lb.bgp.asn:", was.ASN, is.ASN)
		c.Value("lb.bgp.router_id:", was.RouterID, is.RouterID)
		c.Value("lb.bgp.hold_time:", was.HoldTime, is.HoldTime)
		c.Value("lb.bgp.graceful_restart:", was.GracefulRestart, is.GracefulRestart)
	})
	c.Value("lb.bgp.communities:", communities(was.Communities), communities(is.Communities))
	c.Value("lb.bgp.med:", was.MED, is.MED)
}

// communities returns communities as they are in a file.
func communities(all []uint32) (texts []string) {
	for _, one := range all {
		texts = append(texts, fmt.Sprintf("%d:%d", one>>16, one&0xffff))
	}
	return texts
}

func neighborChanges(c *stage.Changes, name string, was, is announce.Neighbor) {
	name += ": "
	noted(c, again, func(c *stage.Changes) {
		c.Value(name+"asn", was.ASN, is.ASN)
		c.Value(name+"local_address", prefix(was.LocalAddress), prefix(is.LocalAddress))
		c.Hidden(name+"password", was.Password, is.Password)
		c.Value(name+"multihop", was.Multihop, is.Multihop)
		c.Value(name+"ttl_security", was.TTLSecurity, is.TTLSecurity)
	})
	c.Value(name+"next_hop4", prefix(was.NextHop4), prefix(is.NextHop4))
	c.Value(name+"next_hop6", prefix(was.NextHop6), prefix(is.NextHop6))
}

// noted adds a note to the lines that changes adds.
func noted(c *stage.Changes, note string, changes func(*stage.Changes)) {
	var lines stage.Changes
	changes(&lines)
	for _, line := range lines {
		c.Add("%s%s", line, note)
	}
}
