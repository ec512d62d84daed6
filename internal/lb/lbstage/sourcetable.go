// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"culvert/internal/config"
	"culvert/internal/lb"
	"culvert/internal/lb/source"
	"culvert/internal/lb/source/dnssource"
	"culvert/internal/lb/source/etcdsource"
	"culvert/internal/lb/source/filesource"
)

// SourceTable is [[lb.vip.source]], a source of backends of a VIP.
type SourceTable struct {
	// Kind is file, dns or etcd.
	Kind string `toml:"kind,omitempty"`
	// Name is made of what is asked for unless it is given.
	Name string `toml:"name,omitempty"`

	// File is the path, for kind file.
	File string `toml:"file,omitempty"`

	// Host is the name, Records are of a, aaaa and srv, and Resolver is whom to ask, for kind dns.
	Host     string   `toml:"host,omitempty"`
	Records  []string `toml:"records,omitempty"`
	Resolver string   `toml:"resolver,omitempty"`
	MinTTL   string   `toml:"min_ttl,omitempty"`
	MaxTTL   string   `toml:"max_ttl,omitempty"`

	// Prefix is that of keys, and the others say how to connect, for kind etcd.
	Prefix    string   `toml:"prefix,omitempty"`
	Endpoints []string `toml:"endpoints,omitempty"`
	CA        string   `toml:"ca,omitempty"`
	Cert      string   `toml:"cert,omitempty"`
	Key       string   `toml:"key,omitempty"`

	Keep    string `toml:"keep,omitempty"`
	KeepFor string `toml:"keep_for,omitempty"`
	Damp    string `toml:"damp,omitempty"`
	Drain   string `toml:"drain,omitempty"`

	config.Position
}

// Kinds of sources.
const (
	kindFile = "file"
	kindDNS  = "dns"
	kindEtcd = "etcd"
)

// sourceSpec is a source of a VIP, compiled.
type sourceSpec struct {
	vip        lb.Service
	name, kind string
	source     source.Source
	rules      source.Rules
}

// compileSource compiles a source of a VIP. cluster is the [cluster] of the file, nil without one.
func compileSource(c *SourceTable, v lb.VIP, cluster *config.Cluster) (s sourceSpec, err error) {
	s = sourceSpec{vip: v.Service, kind: c.Kind}
	refuse := func(key, format string, args ...any) error {
		return vipLocator{c, v.Service}.Locate(key, fmt.Errorf("source: "+format, args...))
	}
	if err := c.foreign(refuse); err != nil {
		return s, err
	}
	switch c.Kind {
	case kindFile:
		if c.File == "" {
			return s, refuse("", "file is missing: give the path of one with a backend on each line")
		}
		s.name, s.source = c.File, filesource.Source{Path: c.Relative("file", c.File)}
	case kindDNS:
		s.name = c.Host
		s.source, err = c.dns(v, refuse)
	case kindEtcd:
		s.name = c.Prefix
		s.source, err = c.etcd(cluster, refuse)
	}
	if err != nil {
		return s, err
	}
	s.name = or(c.Name, s.name)
	if len(s.name) > longestName || strings.ContainsFunc(s.name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return s, refuse("name", "its name has more than %d bytes or control characters: give a shorter name", longestName)
	}
	s.rules, err = c.rules(refuse)
	return s, err
}

// longestName bounds the name of a source, which metrics have as a label.
const longestName = 128

// foreign refuses an unknown kind, and keys that go with another one.
func (c *SourceTable) foreign(refuse func(key, format string, args ...any) error) error {
	of := map[string][]string{
		kindFile: {"file"}, kindDNS: {"host", "records", "resolver", "min_ttl", "max_ttl"},
		kindEtcd: {"prefix", "endpoints", "ca", "cert", "key"},
	}
	switch {
	case c.Kind == "":
		return refuse("", "kind is missing: use \"file\", \"dns\" or \"etcd\"")
	case of[c.Kind] == nil:
		return refuse("kind", "kind %q: use file, dns or etcd", c.Kind)
	}
	given := map[string]bool{
		"file": c.File != "", "host": c.Host != "", "records": len(c.Records) > 0, "resolver": c.Resolver != "", "min_ttl": c.MinTTL != "",
		"max_ttl": c.MaxTTL != "", "prefix": c.Prefix != "", "endpoints": len(c.Endpoints) > 0, "ca": c.CA != "", "cert": c.Cert != "", "key": c.Key != "",
	}
	for _, kind := range []string{kindFile, kindDNS, kindEtcd} {
		for _, key := range of[kind] {
			if kind != c.Kind && given[key] {
				return refuse(key, "%s goes with kind %q, not with %q", key, kind, c.Kind)
			}
		}
	}
	return nil
}

func (c *SourceTable) dns(v lb.VIP, refuse func(key, format string, args ...any) error) (source.Source, error) {
	s := dnssource.Source{Host: c.Host, Port: v.Service.Port, MinTTL: dnssource.DefaultMinTTL, MaxTTL: dnssource.DefaultMaxTTL}
	if c.Host == "" {
		return s, refuse("", "host is missing: give the name to look up, as \"web.example.net\"")
	}
	if !dnssource.IsName(c.Host) {
		return s, refuse("host", "host %q is no name: write it as web.example.net", c.Host)
	}
	for _, r := range c.Records {
		switch r {
		case "a":
			s.IPv4 = true
		case "aaaa":
			s.IPv6 = true
		case "srv":
			s.SRV = true
		default:
			return s, refuse("records", "records %q: use a, aaaa and srv", r)
		}
	}
	if !s.IPv4 && !s.IPv6 { // l2 reaches backends of the VIP's family alone
		s.IPv4 = v.Encap != lb.EncapL2 || v.Service.Addr.Is4()
		s.IPv6 = v.Encap != lb.EncapL2 || v.Service.Addr.Is6()
	}
	if c.Resolver != "" {
		at, err := resolver(c.Resolver)
		if err != nil {
			return s, refuse("resolver", "%w", err)
		}
		s.Resolvers = []string{at}
	}
	for _, d := range []struct {
		key, text string
		into      *time.Duration
	}{{"min_ttl", c.MinTTL, &s.MinTTL}, {"max_ttl", c.MaxTTL, &s.MaxTTL}} {
		if d.text == "" {
			continue
		}
		var err error
		if *d.into, err = config.Duration(c, d.key, d.text); err != nil {
			return s, err
		}
	}
	if s.MinTTL > s.MaxTTL {
		return s, refuse("min_ttl", "min_ttl %v is longer than max_ttl %v", s.MinTTL, s.MaxTTL)
	}
	return s, nil
}

// resolver returns the address of a resolver with its port.
func resolver(text string) (string, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return net.JoinHostPort(a.String(), "53"), nil
	}
	if ap, err := netip.ParseAddrPort(text); err == nil && ap.Port() != 0 {
		return ap.String(), nil
	}
	return "", fmt.Errorf("resolver %q: write it as 192.0.2.53, 192.0.2.53:5353 or [2001:db8::53]:53", text)
}

func (c *SourceTable) etcd(cluster *config.Cluster, refuse func(key, format string, args ...any) error) (source.Source, error) {
	s := etcdsource.Source{Prefix: c.Prefix, Endpoints: c.Endpoints, TLS: etcdsource.TLS{
		CA: c.Relative("ca", c.CA), Cert: c.Relative("cert", c.Cert), Key: c.Relative("key", c.Key),
	}}
	if c.Prefix == "" {
		return s, refuse("", "prefix is missing: give what the keys begin with, as \"/services/web/\"")
	}
	if len(c.Endpoints) == 0 {
		switch {
		case s.TLS != etcdsource.TLS{}:
			return s, refuse("", "endpoints are missing beside ca, cert or key: name the members of etcd")
		case cluster == nil:
			return s, refuse("", "endpoints are missing, and there is no [cluster] whose etcd could be asked: name the members of etcd, as [\"https://192.0.2.1:2379\"]")
		}
		s.Endpoints = cluster.Endpoints
		if t := cluster.TLS; t != nil {
			s.TLS = etcdsource.TLS{CA: t.CA, Cert: t.Cert, Key: t.Key}
		}
		return s, nil
	}
	if s.TLS.CA == "" && s.TLS != (etcdsource.TLS{}) || (s.TLS.Cert == "") != (s.TLS.Key == "") {
		return s, refuse("", "cert and key go together, and with ca")
	}
	for _, e := range c.Endpoints {
		u, err := url.Parse(e)
		switch {
		case err != nil || u.Hostname() == "" || u.Port() == "" || u.Path != "" || u.Scheme != "http" && u.Scheme != "https":
			return s, refuse("endpoints", "endpoint %q: write it as https://ADDRESS:PORT", e)
		case u.Scheme == "https" && s.TLS.CA == "":
			return s, refuse("endpoints", "endpoint %q: set ca, the authority of its certificate", e)
		case u.Scheme == "http" && s.TLS.CA != "":
			return s, refuse("endpoints", "endpoint %q beside ca: it begins with https", e)
		case u.Scheme == "http" && !config.Loopback(u.Host):
			return s, refuse("endpoints", "endpoint %q is on another machine: use https, with ca", e)
		}
	}
	return s, nil
}

func (c *SourceTable) rules(refuse func(key, format string, args ...any) error) (r source.Rules, err error) {
	r = source.Rules{Keep: source.DefaultKeep, KeepFor: source.DefaultKeepFor, Damp: source.DefaultDamp, Drain: source.DefaultDrain}
	if c.Keep != "" {
		digits, ok := strings.CutSuffix(c.Keep, "%")
		n, err := strconv.ParseUint(digits, 10, 8)
		if !ok || err != nil || n > 100 {
			return r, refuse("keep", "keep %q: write a share from \"0%%\" to \"100%%\"", c.Keep)
		}
		r.Keep = int(n)
	}
	for _, d := range []struct {
		key, text string
		into      *time.Duration
		off       bool
	}{{"keep_for", c.KeepFor, &r.KeepFor, false}, {"damp", c.Damp, &r.Damp, true}, {"drain", c.Drain, &r.Drain, true}} {
		switch {
		case d.text == "":
			continue
		case d.off && (d.text == "0" || d.text == "0s"):
			*d.into = 0
			continue
		}
		if *d.into, err = config.Duration(c, d.key, d.text); err != nil {
			return r, err
		}
	}
	return r, nil
}

// compileSources compiles the sources of a VIP, and gives the VIP a place for what each names.
func compileSources(tables []SourceTable, v *lb.VIP, cluster *config.Cluster) (all []sourceSpec, err error) {
	var errs config.Errors
	for n := range tables {
		c := &tables[n]
		s, err := compileSource(c, *v, cluster)
		if err == nil && slices.ContainsFunc(all, func(o sourceSpec) bool { return o.name == s.name }) {
			err = vipLocator{c, v.Service}.Locate("name", fmt.Errorf("source %q: there is one of this name already: give it another name", s.name))
		}
		if err != nil {
			errs.Add(err)
			continue
		}
		all = append(all, s)
		v.Offers = append(v.Offers, lb.Offers{Source: s.name})
	}
	return all, errs.Err()
}

// noteSources notes the files of sources that cannot be read as they are: the load balancer starts without their backends.
func (p *Plan) noteSources(note func(error)) {
	for _, s := range p.sources {
		f, ok := s.source.(filesource.Source)
		if !ok {
			continue
		}
		if _, err := filesource.Read(f.Path); err != nil {
			note(p.locateSource(s, errors.New("no backends come from it until that is mended: "+err.Error())))
		}
	}
}

// locateSource adds the source and its position in the file to an error.
func (p *Plan) locateSource(s sourceSpec, err error) error {
	err = &lb.Error{VIP: s.vip, Err: fmt.Errorf("source %q: %w", s.name, err)}
	for n, v := range p.state.VIPs {
		at := slices.IndexFunc(v.Offers, func(o lb.Offers) bool { return o.Source == s.name })
		if v.Service == s.vip && at >= 0 && at < len(p.file.VIP[n].Source) {
			return p.file.VIP[n].Source[at].Locate("", err)
		}
	}
	return err
}
