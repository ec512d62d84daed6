// SPDX-License-Identifier: Apache-2.0

// Package lbstage is the load balancer as a stage: its table of the file, compiled, brought into force and served.
package lbstage

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"culvert/internal/config"
	"culvert/internal/lb"
	"culvert/internal/lb/announce"
	"culvert/internal/lb/lbplane"
	"culvert/internal/stage"
)

// Plan is the [lb] table of a file: nothing in it can be wrong in itself any more.
type Plan struct {
	state   lb.State
	options lbplane.Options
	bgp     *announce.Options // nil if nothing is announced
	file    *Table            // nil for a file without the table
	kept    bool              // without the table: there are VIPs made by hand
	gone    []string          // what an earlier file had, where nothing is balanced any more
}

// Compile reads the [lb] table of a file.
func Compile(f stage.File) (*Plan, error) {
	c := stage.Table[*Table](f, Stage{})
	if c == nil {
		return &Plan{}, nil
	}
	p := &Plan{file: c, options: lbplane.Options{
		RingSize: c.RingSize, Flows: c.Flows, InsertRate: c.InsertRate, VIPs: c.VIPs, Backends: c.Backends,
	}}
	err := durations(c, map[string]said{
		"tcp_timeout": {c.TCPTimeout, &p.options.IdleTCP}, "udp_timeout": {c.UDPTimeout, &p.options.IdleUDP},
		"syn_timeout": {c.SYNTimeout, &p.options.IdleNew},
	})
	if err != nil {
		return nil, err
	}
	options, err := p.options.Normal()
	if err != nil {
		return nil, c.Locate("", fmt.Errorf("[lb]: %w", err))
	}
	p.options = *options
	if p.options.Unclaimed, err = lb.ParseUnclaimed(c.Unclaimed); err != nil {
		return nil, c.Locate("unclaimed", err)
	}
	for _, s := range []struct {
		key, text string
		prefix    *netip.Prefix
	}{{lb.PartSource4, c.Source4, &p.state.Source4}, {lb.PartSource6, c.Source6, &p.state.Source6}} {
		if s.text == "" {
			continue
		}
		if *s.prefix, err = parseSource(s.text); err != nil {
			return nil, c.Locate(s.key, fmt.Errorf("%s = %q: %w", s.key, s.text, err))
		}
	}
	for _, v := range c.VIP {
		vip, err := compileVIP(v)
		if err != nil {
			return nil, err
		}
		p.state.VIPs = append(p.state.VIPs, vip)
	}
	if err := p.locate(p.state.Validate(p.options)); err != nil {
		return nil, err
	}
	p.bgp, err = compileBGP(c.BGP)
	return p, err
}

// said is a time to be read.
type said struct {
	from string
	to   *time.Duration
}

// durations reads the times that keys of the table at l have.
func durations(l interface{ Locate(string, error) error }, of map[string]said) (err error) {
	for _, key := range slices.Sorted(maps.Keys(of)) {
		if *of[key].to, err = config.Duration(l, key, of[key].from); err != nil {
			return err
		}
	}
	return nil
}

func parseSource(text string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p, nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, errors.New("use a prefix, as 10.200.0.0/16, or an address")
	}
	p := netip.PrefixFrom(a, a.BitLen())
	if a.AsSlice()[a.BitLen()/8-1] == 0 {
		return netip.Prefix{}, fmt.Errorf("it looks like a network, and without a length it is one address: write %s for that one", p)
	}
	return p, nil
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func compileVIP(c VIPTable) (v lb.VIP, err error) {
	proto, err := lb.ParseProtocol(c.Protocol)
	if err != nil {
		return v, c.Locate(lb.PartProtocol, fmt.Errorf("VIP %s: %w", c.Address, err))
	}
	service, err := lb.NewService(c.Address, proto)
	if err != nil {
		return v, c.Locate(lb.PartAddress, err)
	}
	v = lb.VIP{
		Service: service, Hash: or(c.Hash, lb.HashFlow), OnFailure: or(c.OnFailure, lb.FailKeep),
		Encap: or(c.Encapsulation, lb.EncapIPIP), File: true,
	}
	for _, f := range []struct {
		key  string
		n    int
		into *uint8
	}{{lb.PartQUIC, c.QUICServerID, &v.ServerID}, {lb.PartConfig, c.QUICConfig, &v.IDConfig}} {
		if f.n < 0 || f.n > 255 {
			return v, c.Locate(f.key, fmt.Errorf("VIP %s: %s %d is out of range", service, f.key, f.n))
		}
		*f.into = uint8(f.n)
	}
	for _, id := range c.VLANs {
		if id < 1 || id > 4094 {
			return v, c.Locate(lb.PartVLANs, &lb.Error{VIP: service, Err: fmt.Errorf("VLAN %d: use 1 to 4094", id)})
		}
		v.VLANs = append(v.VLANs, uint16(id))
	}
	if c.Check != nil {
		if v.Check, err = compileCheck(c.Check, service); err != nil {
			return v, err
		}
	}
	for _, r := range c.Backend {
		b, err := compileBackend(r, v)
		if err != nil {
			return v, err
		}
		v.Backends = append(v.Backends, b)
	}
	return v, nil
}

// ofVIP is a place in the file that has something of a VIP.
type ofVIP struct {
	place interface{ Locate(string, error) error }
	vip   lb.Service
}

func (o ofVIP) Locate(key string, err error) error {
	return o.place.Locate(key, &lb.Error{VIP: o.vip, Err: err})
}

func compileCheck(c *CheckTable, of lb.Service) (*lb.Check, error) {
	check := lb.Check{
		Type: c.Type, Port: c.Port, Path: c.Path, Host: c.Host, Status: c.Status, Send: c.Send, Expect: c.Expect,
	}
	err := durations(ofVIP{c, of}, map[string]said{"interval": {c.Interval, &check.Interval}, "timeout": {c.Timeout, &check.Timeout}})
	check = check.WithDefaults()
	if c.Rise != nil {
		check.Rise = *c.Rise
	}
	if c.Fall != nil {
		check.Fall = *c.Fall
	}
	return &check, err
}

func compileBackend(c BackendTable, v lb.VIP) (b lb.Backend, err error) {
	if b.Addr, err = lb.ParseBackend(c.Address); err != nil {
		return b, c.Locate(lb.PartAddress, fmt.Errorf("VIP %s: %w", v.Service, err))
	}
	b.Weight, b.ServerID, b.File = 1, c.ServerID, true
	if c.Weight != nil {
		if b.Weight, err = lb.ParseWeight(*c.Weight); err != nil {
			return b, c.Locate(lb.PartWeight, &lb.Error{VIP: v.Service, Backend: b.Addr, Err: err})
		}
	}
	b.Encap = or(c.Encapsulation, v.Encap)
	switch {
	case c.GUEPort != nil:
		b.GUEPort = *c.GUEPort
	case b.Encap == lb.EncapGUE:
		b.GUEPort = lb.GUEPort
	}
	return b, nil
}

// locate puts file, line and column in front of an error; nil stays nil.
func (p *Plan) locate(err error) error {
	if err == nil || p.file == nil {
		return err
	}
	var at *lb.Error
	if !errors.As(err, &at) {
		return p.file.Locate("", err)
	}
	for n := len(p.state.VIPs) - 1; n >= 0; n-- { // of two the second
		v := p.state.VIPs[n]
		if v.Service != at.VIP {
			continue
		}
		for m := len(v.Backends) - 1; m >= 0; m-- {
			if v.Backends[m].Addr == at.Backend {
				return p.file.VIP[n].Backend[m].Locate(at.Part, err)
			}
		}
		return p.file.VIP[n].Locate(at.Part, err)
	}
	return p.file.Locate(at.Part, err)
}

// merge puts the file's part in the place of an earlier file's.
func (p *Plan) merge(running lb.State) (lb.State, error) {
	merged, err := lb.Merge(running, p.state)
	if err == nil {
		err = merged.Validate(p.options)
	}
	return merged, p.locate(err)
}
