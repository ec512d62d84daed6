// SPDX-License-Identifier: Apache-2.0

package pipelinefuzz

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/net/bpf"

	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterset"
	"culvert/internal/filter/pcap"
)

// rule is a rule of the filter and its model.
type rule struct {
	name, expr string
	src, dst   string // set that the address has to be in
	to         string // set of endpoints
	action     filterplane.Action
	per        filterplane.Per
	in         int // device and one more, 0 for any
}

// Members of the sets.
const (
	setBad   = "bad"
	setNets  = "nets"
	setPorts = "ports"
)

var (
	badSources = []string{"198.51.100.66", "198.51.100.128/28", "2001:db8:bad::/48", "2001:db8:9::66"}
	netsTo     = []string{"203.0.113.64/27", "2001:db8:113:4000::/52"}
	portsTo    = []string{"203.0.113.7:7", "[2001:db8:113::7]:7", "192.0.2.1:7777"}
)

// rules are rules of all kinds, in the order of the filter.
var rules = []rule{
	{name: "all", action: filterplane.Count},
	{name: "stamp", expr: "icmp[icmptype] == icmp-tstamp", action: filterplane.Drop},
	{name: "sctp", expr: "sctp", action: filterplane.Drop},
	{name: "trusted", expr: "udp src port 4789", action: filterplane.Pass},
	{name: "bad", src: setBad, action: filterplane.Drop},
	{name: "long", expr: "greater 3000 and udp port 5353", action: filterplane.Drop},
	{name: "far", expr: "udp port 5354 and ether[900] = 0x5a", action: filterplane.Drop},
	{name: "netbios", expr: "udp dst port 137", dst: setNets, action: filterplane.Drop},
	{name: "ports", to: setPorts, action: filterplane.Drop},
	{name: "slow", expr: "udp dst port 9", action: filterplane.Limit, per: filterplane.PerSrc},
	{name: "slower", expr: "udp dst port 10", action: filterplane.Limit},
	{name: "vlan", expr: "vlan 666", action: filterplane.Drop},
	{name: "here", expr: "udp dst port 11", in: 2, action: filterplane.Drop},
	{name: "end", expr: "ip[6:2] & 0x8000 != 0", action: filterplane.Drop},
}

// Protected services: two behind a SYNPROXY rule, one on this host.
var (
	forwarded4 = netip.MustParseAddrPort("198.18.0.1:80")
	forwarded6 = netip.MustParseAddrPort("[2001:db8:18::1]:80")
	listening  = netip.MustParseAddrPort("198.18.0.2:8080")
)

func (b *bed) fillFilter() error {
	b.filter, b.rules = make(map[string]*pcap.Judge), rules
	// The addresses of a service on this host are its own.
	for _, cmd := range []string{"link set lo up", "addr add " + listening.Addr().String() + "/32 dev lo"} {
		if err := ip(cmd); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp4", listening.String())
	if err != nil {
		return err
	}
	b.closer(func() { l.Close() })
	f := filterplane.Filter{Services: []filterplane.Service{
		{Addr: forwarded4, Forwarded: true}, {Addr: forwarded6, Forwarded: true, MSS: 1440, WindowScale: 5}, {Addr: listening},
	}}
	for _, r := range rules {
		d := filterplane.Rule{Name: r.name, Action: r.action, Expr: r.expr}
		for _, set := range []struct {
			name string
			to   *[]filterplane.SetRef
		}{{r.src, &d.Src}, {r.dst, &d.Dst}, {r.to, &d.Dst}} {
			if set.name != "" {
				*set.to = append(*set.to, filterplane.SetRef{Set: set.name})
			}
		}
		if r.action == filterplane.Limit {
			d.Rate = &filterplane.Rate{Rate: 1, Burst: 1, Per: r.per}
		}
		if r.in > 0 {
			d.Interfaces = []string{port(r.in - 1)}
		}
		if r.expr != "" {
			code, err := pcap.Compile(r.expr)
			if err != nil {
				return fmt.Errorf("compile %q: %w", r.expr, err)
			}
			if b.filter[r.name], err = pcap.NewJudge(code); err != nil {
				return err
			}
			d.Code = []bpf.RawInstruction(code)
		}
		f.Rules = append(f.Rules, d)
	}
	f.Sets = []filterplane.Set{{Name: setBad}, {Name: setNets}, {Name: setPorts, Endpoints: true}}
	bad, err := filterset.ParsePrefixes(badSources, filterset.Options{})
	if err != nil {
		return err
	}
	nets, err := filterset.ParsePrefixes(netsTo, filterset.Options{})
	if err != nil {
		return err
	}
	ports, err := filterset.ParseEndpoints(portsTo, filterset.Options{})
	if err != nil {
		return err
	}
	return filterplane.EditAndSets(b.inst, func(to *filterplane.Filter) error { *to = f; return nil },
		map[string]filterplane.Members{setBad: {Prefixes: bad}, setNets: {Prefixes: nets}, setPorts: {Endpoints: ports}})
}

// peek has the fields that sets and services compare. The filter finds them after up to two tags and after extension headers.
type peek struct {
	src, dst     netip.Addr
	sport, dport uint16
	ports        bool
	proto        byte
	plain        bool // TCP or UDP right behind IP
	missed       bool // what is looked for is in another buffer, or behind too many headers
}

// look reads the fields of a frame for sets and services. linear is how many bytes are in the first buffer.
func look(tr trial) (p peek) {
	f, at := tr.frame, 14
	kind := be.Uint16(f[12:])
	for tags := 0; tags < 2 && (kind == typeVLAN || kind == typeQinQ); tags++ {
		if at+4 > tr.linear() {
			return p
		}
		kind, at = be.Uint16(f[at+2:]), at+4
	}
	buffer, whole := f[:tr.linear()], len(f)
	has := func(n int) bool { return at+n <= len(buffer) }
	end := 0
	switch kind {
	case typeIPv4:
		if !has(20) {
			p.missed = at+20 <= whole
			return p
		}
		ip := buffer[at:]
		head, size := int(ip[0]&15)*4, int(be.Uint16(ip[2:]))
		if ip[0]>>4 != 4 || head < 20 || size < head || at+size > whole {
			return p
		}
		p.src, p.dst, p.proto = netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20])), ip[9]
		if be.Uint16(ip[6:])&0x1fff != 0 {
			return p
		}
		p.plain = head == 20
		end, at = at+size, at+head
	case typeIPv6:
		if !has(40) {
			p.missed = at+40 <= whole
			return p
		}
		if buffer[at]>>4 != 6 {
			return p
		}
		ip := buffer[at:]
		end = at + 40 + int(be.Uint16(ip[4:]))
		if end > whole {
			return p
		}
		p.src, p.dst, p.proto = netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40])), ip[6]
		if end == at+40 && p.proto == 0 {
			end = whole
		}
		at += 40
		p.plain = true
		for n := 0; ; n++ {
			size := 0
			switch p.proto {
			case 0, 43, 60, 51, 44:
				if at+8 > end {
					return p
				}
				if !has(8) {
					p.missed = true
					return p
				}
				switch h := buffer[at:]; p.proto {
				case 51:
					size = (int(h[1]) + 2) * 4
				case 44:
					size = 8
					if be.Uint16(h[2:])&0xfff8 != 0 {
						p.proto = h[0]
						return p
					}
				default:
					size = (int(h[1]) + 1) * 8
				}
			}
			if size == 0 {
				break
			}
			p.plain, p.proto, at = false, buffer[at], at+size
			if at > 0x7fff || n == 8 {
				p.missed = true
				return p
			}
		}
	default:
		return p
	}
	if at+4 > end {
		return p
	}
	if !has(4) {
		p.missed = true
		return p
	}
	if !slices.Contains([]byte{6, 17, 136, 132}, p.proto) {
		return p
	}
	p.sport, p.dport, p.ports = be.Uint16(buffer[at:]), be.Uint16(buffer[at+2:]), true
	return p
}

// matches is the model of a rule. It reads the members of sets from their text.
func (b *bed) matches(r rule, tr trial, p *peek) bool {
	if r.in > 0 && tr.in != r.in-1 {
		return false
	}
	if j := b.filter[r.name]; j != nil && !j.Match(tr.frame, len(tr.frame)) {
		return false
	}
	in := func(list []string, a netip.Addr) bool {
		return slices.ContainsFunc(list, func(s string) bool {
			p, err := netip.ParsePrefix(s)
			if err != nil {
				one := addr(s)
				p = netip.PrefixFrom(one, one.BitLen())
			}
			return a.IsValid() && p.Contains(a)
		})
	}
	if r.src != "" && !in(badSources, p.src) || r.dst != "" && !in(netsTo, p.dst) {
		return false
	}
	return r.to == "" || p.ports && slices.ContainsFunc(portsTo, func(s string) bool {
		return netip.MustParseAddrPort(s) == netip.AddrPortFrom(p.dst, p.dport)
	})
}

// checkFilter compares what the filter did with the rules, by libpcap's meaning of their expressions and the sets' members.
func (b *bed) checkFilter(tr trial, o outcome) error {
	if !b.on.filter {
		return nil
	}
	tr, ok := judged(tr)
	p := look(tr)
	// Packets that cannot be read are dropped before all rules. No other packet is dropped for that reason.
	refused := ""
	switch {
	case !ok:
		refused = "drop filter-tags"
	case p.missed:
		refused = "drop filter-headers"
	}
	for _, reason := range []string{"drop filter-tags", "drop filter-headers"} {
		if (o.reason == reason) != (refused == reason) {
			return fmt.Errorf("the filter has to refuse it as %q", refused)
		}
	}
	if refused != "" {
		return nil
	}
	verdict, limited := filterplane.Action(""), false
	for _, r := range b.rules {
		if !b.matches(r, tr, &p) {
			continue
		}
		if r.action == filterplane.Limit {
			limited = true
			continue
		}
		if r.action != filterplane.Count {
			verdict = r.action
			break
		}
	}
	switch {
	case o.reason == "drop filter-limit":
		if !limited {
			return errors.New("no limit is on such packets")
		}
	case (verdict == filterplane.Drop) != (o.reason == "drop filter"):
		return fmt.Errorf("the rules say %q", verdict)
	case o.reason == "fwd filter-synack" || o.reason == "drop filter-cookie":
		service := netip.AddrPortFrom(p.dst, p.dport)
		if verdict == filterplane.Pass || !p.plain || p.proto != protoTCP || !b.ours(tr) ||
			!slices.Contains([]netip.AddrPort{forwarded4, forwarded6, listening}, service) {
			return errors.New("it is to no protected service")
		}
		if o.reason == "fwd filter-synack" {
			return checkSYNACK(tr.frame, o.frame)
		}
	}
	return nil
}

// checkSYNACK checks the answer to a SYN.
func checkSYNACK(frame, out []byte) error {
	in := decode(frame)
	if in.ip == 0 {
		return errors.New("a malformed packet was answered")
	}
	o, err := turnedAround(frame, &in, out)
	if err != nil {
		return err
	}
	asked, answer := in.packet[in.l4:], o.packet[o.l4:]
	if len(asked) < 20 || o.l4proto != protoTCP || len(answer) < 20 {
		return fmt.Errorf("%x answered with %x", asked, answer)
	}
	switch {
	case in.transportSum() != 0xffff:
		return errors.New("a SYN with a wrong checksum was answered")
	case o.transportSum() != 0xffff:
		return fmt.Errorf("wrong checksum in %x", answer)
	case asked[13]&0x17 != 2:
		return fmt.Errorf("no SYN was answered: flags %#x", asked[13])
	case answer[13] != 0x12 || be.Uint16(answer) != be.Uint16(asked[2:]) || be.Uint16(answer[2:]) != be.Uint16(asked) ||
		be.Uint32(answer[8:]) != be.Uint32(asked[4:])+1:
		return fmt.Errorf("%x answered with %x", asked, answer)
	case int(answer[12]>>4)*4 != len(answer):
		return fmt.Errorf("the answer's header has not the length of its packet: %x", answer)
	}
	return nil
}

// disableIPv6 keeps the kernel from sending packets of its own.
func disableIPv6() error {
	for _, set := range []string{"all", "default"} {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+set+"/disable_ipv6", []byte("1"), 0); err != nil {
			return err
		}
	}
	return nil
}
