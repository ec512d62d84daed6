// SPDX-License-Identifier: Apache-2.0

// Package lbstage is the load balancer as a stage: it compiles [lb] of the configuration file, brings it into force and
// serves it.
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
	"culvert/internal/lb/peers"
	"culvert/internal/stage"
)

// Plan is the compiled and validated [lb] table of a file.
type Plan struct {
	state   lb.State
	options lbplane.Options
	bgp     *announce.Options // nil if nothing is announced
	sources []sourceSpec      // of backends
	peers   *peers.Options    // nil if no flows are exchanged with other machines
	file    *Table            // nil for a file without the table
	kept    bool              // the file has no table, but there are VIPs made by hand
	ownSeed string            // this machine's seed once the plan is prepared, "" if the file has one
	gone    []string          // names of the VIPs of an earlier file, if the load balancer is turned off
}

// Compile compiles the [lb] table of a file. Errors have the position in the file.
func Compile(f stage.File) (*Plan, error) {
	c := stage.Table[*Table](f, Stage{})
	if c == nil {
		return &Plan{}, nil
	}
	p := &Plan{file: c, options: lbplane.Options{
		RingSize: c.RingSize, Flows: c.Flows, InsertRate: c.InsertRate, VIPs: c.VIPs, Backends: c.Backends,
	}}
	var errs config.Errors
	errs.Add(parseDurations(c, map[string]duration{
		"tcp_timeout": {c.TCPTimeout, &p.options.IdleTCP}, "udp_timeout": {c.UDPTimeout, &p.options.IdleUDP},
		"syn_timeout": {c.SYNTimeout, &p.options.IdleNew},
	}))
	if options, err := p.options.Normal(); err != nil {
		errs.Add(c.Locate("", fmt.Errorf("[lb]: %w", err)))
	} else {
		p.options = *options
	}
	var err error
	if p.options.Unclaimed, err = lb.ParseUnclaimed(c.Unclaimed); err != nil {
		errs.Add(c.Locate("unclaimed", err))
	}
	for _, s := range []struct {
		key, text string
		prefix    *netip.Prefix
	}{{lb.PartSource4, c.Source4, &p.state.Source4}, {lb.PartSource6, c.Source6, &p.state.Source6}} {
		if s.text == "" {
			continue
		}
		if *s.prefix, err = parseSource(s.text); err != nil {
			errs.Add(c.Locate(s.key, fmt.Errorf("%s = %q: %w", s.key, s.text, err)))
		}
	}
	for _, v := range c.VIP {
		vip, err := compileVIP(v)
		errs.Add(err)
		if err == nil {
			sources, err := compileSources(v.Source, &vip, f.Node.Cluster)
			errs.Add(err)
			p.sources = append(p.sources, sources...)
		}
		p.state.VIPs = append(p.state.VIPs, vip)
	}
	if len(errs) == 0 {
		errs.Add(p.locate(p.state.Validate(p.options)))
	}
	p.bgp, err = compileBGP(c.BGP)
	errs.Add(err)
	p.peers, err = compilePeers(c.Peers, p.options.Flows)
	errs.Add(err)
	if err := errs.Err(); err != nil {
		return nil, err
	}
	return p, nil
}

// duration is the text of a duration in the file, and a pointer to its value.
type duration struct {
	text  string
	value *time.Duration
}

// parseDurations parses durations by their keys. l adds the position to an error.
func parseDurations(l interface{ Locate(string, error) error }, keys map[string]duration) (err error) {
	var errs config.Errors
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		*keys[key].value, err = config.Duration(l, key, keys[key].text)
		errs.Add(err)
	}
	return errs.Err()
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
	var errs config.Errors
	for _, r := range c.Backend {
		b, err := compileBackend(r, v)
		errs.Add(err)
		v.Backends = append(v.Backends, b)
	}
	return v, errs.Err()
}

// vipLocator adds the VIP and the position in a table of the VIP to errors.
type vipLocator struct {
	table interface{ Locate(string, error) error }
	vip   lb.Service
}

func (l vipLocator) Locate(key string, err error) error {
	return l.table.Locate(key, &lb.Error{VIP: l.vip, Err: err})
}

func compileCheck(c *CheckTable, of lb.Service) (*lb.Check, error) {
	check := lb.Check{
		Type: c.Type, Port: c.Port, Path: c.Path, Host: c.Host, Status: c.Status, Send: c.Send, Expect: c.Expect,
	}
	err := parseDurations(vipLocator{c, of}, map[string]duration{"interval": {c.Interval, &check.Interval}, "timeout": {c.Timeout, &check.Timeout}})
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

// locate adds the position in the file to an error. It returns nil for nil.
func (p *Plan) locate(err error) error {
	if err == nil || p.file == nil {
		return err
	}
	var at *lb.Error
	if !errors.As(err, &at) {
		return p.file.Locate("", err)
	}
	for n := len(p.state.VIPs) - 1; n >= 0; n-- { // if a VIP or backend is listed twice, the second one is the error
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

// merge returns the running state with the VIPs of the file in place of those of an earlier file.
func (p *Plan) merge(running lb.State) (lb.State, error) {
	merged, err := lb.Merge(running, p.state)
	if err == nil {
		err = merged.Validate(p.options)
	}
	return merged, p.locate(err)
}
