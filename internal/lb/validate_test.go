// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"culvert/internal/lb/health"
	"culvert/internal/lb/lbplane"
)

func service(t *testing.T, s string) Service {
	t.Helper()
	k, err := ParseService(s)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// vip returns a VIP with backends that are reached by IPIP.
func vip(t *testing.T, s string, backends ...string) VIP {
	t.Helper()
	v := VIP{Service: service(t, s), Hash: HashFlow, OnFailure: FailKeep, Encap: EncapIPIP}
	for _, b := range backends {
		v.Backends = append(v.Backends, Backend{Addr: netip.MustParseAddr(b), Encap: EncapIPIP, Weight: 1})
	}
	return v
}

var small = lbplane.Options{RingSize: 17, VIPs: 3, Backends: 20}

func TestParseService(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1:80/tcp":       "192.0.2.1:80/tcp",
		"[2001:db8::1]:443/udp":  "[2001:db8::1]:443/udp",
		"192.0.2.1/udp":          "192.0.2.1/udp",
		"2001:db8::1/tcp":        "2001:db8::1/tcp",
		"[2001:db8::1]/tcp":      "2001:db8::1/tcp",
		"[2001:db8::1/tcp":       `"[2001:db8::1" is no address of a VIP`,
		"192.0.2.1:80":           `VIP 192.0.2.1:80 lacks its protocol: write 192.0.2.1:80/tcp or 192.0.2.1:80/udp`,
		"[2001:db8::7]":          `VIP [2001:db8::7] lacks its protocol: write [2001:db8::7]/tcp or [2001:db8::7]/udp`,
		"192.0.2.1:80/sctp":      `"sctp" is no protocol of a VIP: use tcp or udp: write 192.0.2.1:80/tcp or 192.0.2.1:80/udp`,
		"192.0.2.1:0/tcp":        `"192.0.2.1:0" has port 0: leave the port out`,
		"192.0.2.1:70000/tcp":    `"192.0.2.1:70000" is no address of a VIP`,
		"www.example.com:80/tcp": `"www.example.com:80" is no address of a VIP`,
		"":                       `"" is no VIP`,
	} {
		k, err := ParseService(text)
		got := k.String()
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != want || err != nil && !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	v := func(s string, backends ...string) VIP { return vip(t, s, backends...) }
	with := func(v VIP, change func(*VIP)) VIP { change(&v); return v }
	backend := func(v VIP, change func(*Backend)) VIP { change(&v.Backends[len(v.Backends)-1]); return v }
	const tcp, udp, six = "192.0.2.1:80/tcp", "192.0.2.1:53/udp", "[2001:db8::1]:80/tcp"
	quic := func(ids ...string) VIP {
		q := v(udp, "10.0.0.11", "10.0.0.12")
		q.ServerID = 2
		for n, id := range ids {
			q.Backends[n].ServerID = id
		}
		return q
	}
	check := func(c Check) func(*VIP) { c = c.WithDefaults(); return func(v *VIP) { v.Check = &c } }
	var many VIP
	for n := range 18 {
		many.Backends = append(many.Backends, Backend{Addr: netip.AddrFrom4([4]byte{10, 0, 1, byte(n)}), Encap: EncapIPIP})
	}
	for _, tt := range []struct {
		vips []VIP
		want string // part of the error, "" for no error
		part string // what the error is about
	}{
		{nil, "", ""},
		{[]VIP{v(tcp)}, "", ""}, // without backends
		{[]VIP{v(tcp, "10.0.0.11", "fd00::11"), v(udp, "10.0.0.11"), v(six, "10.0.0.11")}, "", ""},
		{[]VIP{quic("0102", "0A0b")}, "", ""},
		{[]VIP{v(tcp), v(udp), v(tcp)}, "VIP 192.0.2.1:80/tcp: it is there twice", "address"},
		{[]VIP{v("0.0.0.0:80/tcp")}, "VIP 0.0.0.0:80/tcp: the address is unspecified", "address"},
		{[]VIP{v("224.0.0.9:80/tcp")}, "VIP 224.0.0.9:80/tcp: the address is multicast", "address"},
		{[]VIP{v("[ff02::1]:80/tcp")}, "the address is multicast", "address"},
		{[]VIP{v("127.0.0.1:80/tcp")}, "VIP 127.0.0.1:80/tcp: the address is loopback", "address"},
		{[]VIP{v("[fe80::1]:80/tcp")}, "VIP [fe80::1]:80/tcp: the address is link-local", "address"},
		{[]VIP{v("169.254.1.1/tcp")}, "the address is link-local", "address"},
		{[]VIP{v("255.255.255.255/tcp")}, "the address is broadcast", "address"},
		{[]VIP{v("[::ffff:192.0.2.1]:80/tcp")}, "is an IPv4 address written as IPv6: write 192.0.2.1", "address"},
		{[]VIP{with(v(tcp), func(v *VIP) { v.Service.Protocol = 132 })}, "protocol 132: use tcp or udp", "protocol"},
		{[]VIP{with(v(tcp), func(v *VIP) { v.Hash = "x" })}, `VIP 192.0.2.1:80/tcp: hash "x": use flow, source or source-port`, "hash"},
		{[]VIP{with(v(tcp), func(v *VIP) { v.OnFailure = "" })}, `on_failure "": use keep or move`, "on_failure"},
		{[]VIP{with(v(tcp), func(v *VIP) { v.Encap = "vxlan" })}, `encapsulation "vxlan": use ipip, gue or l2`, "encapsulation"},
		{[]VIP{with(v(tcp), func(v *VIP) { v.ServerID = 2 })}, "quic_server_id goes with UDP", "quic_server_id"},
		{[]VIP{with(v(udp), func(v *VIP) { v.ServerID = 9 })}, "quic_server_id 9: use 1 to 8 bytes", "quic_server_id"},
		{[]VIP{with(v(udp), func(v *VIP) { v.ServerID, v.IDConfig = 1, 7 })}, "quic_config 7: use 0 to 6", "quic_config"},
		{[]VIP{with(v(udp), func(v *VIP) { v.IDConfig = 1 })}, "quic_config goes with quic_server_id", "quic_config"},
		{[]VIP{with(v("192.0.2.1/tcp"), check(Check{Type: health.TCP}))}, "the check needs a port", "check"},
		{[]VIP{with(v("192.0.2.1/tcp"), check(Check{Type: health.TCP, Port: 80}))}, "", ""},
		{[]VIP{with(v(tcp), check(Check{Type: "icmp"}))}, `VIP 192.0.2.1:80/tcp: type "icmp" of check`, "check"},
		{[]VIP{v(tcp, "10.0.0.11", "10.0.0.11")}, "VIP 192.0.2.1:80/tcp: backend 10.0.0.11: it is there twice", "address"},
		{[]VIP{v(tcp, "127.0.0.1")}, "backend 127.0.0.1: the address is loopback", "address"},
		{[]VIP{v(tcp, "192.0.2.1")}, "backend 192.0.2.1: its address is that of VIP 192.0.2.1:80/tcp: packets would come back", "address"},
		{[]VIP{v(tcp, "2001:db8::1"), v(six)}, "backend 2001:db8::1: its address is that of VIP [2001:db8::1]:80/tcp", "address"},
		{[]VIP{backend(v(tcp, "fd00::11"), func(b *Backend) { b.Encap = EncapL2 })},
			"VIP 192.0.2.1:80/tcp: backend fd00::11: l2 cannot reach a backend of another family", "encapsulation"},
		{[]VIP{backend(v(six, "fd00::11"), func(b *Backend) { b.Encap = EncapL2 })}, "", ""},
		{[]VIP{backend(v(tcp, "10.0.0.11"), func(b *Backend) { b.Encap = "" })}, `encapsulation "": use`, "encapsulation"},
		{[]VIP{backend(v(tcp, "10.0.0.11"), func(b *Backend) { b.GUEPort = 6080 })}, "gue_port goes with gue, not with ipip", "gue_port"},
		{[]VIP{backend(v(tcp, "10.0.0.11"), func(b *Backend) { b.Encap = EncapGUE })}, "gue_port 0: use 1 to 65535", "gue_port"},
		{[]VIP{backend(v(tcp, "10.0.0.11"), func(b *Backend) { b.Weight = 65536 })}, "backend 10.0.0.11: weight 65536: use 0 to 65535", "weight"},
		{[]VIP{backend(v(tcp, "10.0.0.11"), func(b *Backend) { b.ServerID = "01" })}, "server_id goes with quic_server_id of the VIP", "server_id"},
		{[]VIP{quic("01")}, `server_id "01" has 1 bytes: quic_server_id says 2`, "server_id"},
		{[]VIP{quic("01zz")}, `server_id "01zz": use two hexadecimal digits for each byte`, "server_id"},
		{[]VIP{quic("0a02", "0A02")}, `backend 10.0.0.12: server_id "0A02" is that of backend 10.0.0.11 too`, "server_id"},
		{[]VIP{v(tcp), v(udp), v(six), v("192.0.2.9/tcp")}, "VIP 192.0.2.9/tcp: one VIP more than the 3 there is room for: set lb.vips", ""},
		{[]VIP{with(v(tcp), func(v *VIP) { v.Backends = many.Backends })}, "18 backends do not fit into a ring of 17: set lb.ring_size", ""},
		{[]VIP{with(v(tcp), func(v *VIP) { v.Backends = many.Backends[:12] }), with(v(udp), func(v *VIP) { v.Backends = many.Backends[:12] })},
			"24 backends of all VIPs are more than the 20 there is room for", ""},
	} {
		s := State{VIPs: tt.vips}
		err := s.Validate(small)
		var at *Error
		switch {
		case tt.want == "" && err == nil:
		case tt.want == "" || !errors.As(err, &at):
			t.Errorf("%+v: %v, want %q", tt.vips, err, tt.want)
		case !strings.Contains(err.Error(), tt.want) || at.Part != tt.part:
			t.Errorf("%q at %q, want %q at %q", err, at.Part, tt.want, tt.part)
		}
	}
}

func TestValidateSources(t *testing.T) {
	for _, tt := range []struct{ four, six, want string }{
		{"10.200.0.0/16", "fd00:200::/64", ""},
		{"10.200.0.1/32", "fd00::1/128", ""},
		{"fd00::/64", "", `source4 = "fd00::/64": it is of the other family`},
		{"", "10.0.0.0/8", `source6 = "10.0.0.0/8": it is of the other family`},
		{"0.0.0.0/0", "", "the address is unspecified"},
		{"", "ff00::/8", "the address is multicast"},
	} {
		var s State
		if tt.four != "" {
			s.Source4 = netip.MustParsePrefix(tt.four)
		}
		if tt.six != "" {
			s.Source6 = netip.MustParsePrefix(tt.six)
		}
		err := s.Validate(small)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

func TestParseWeight(t *testing.T) {
	for w, want := range map[int64]bool{-1: false, 0: true, 65535: true, 65536: false, 1 << 40: false} {
		got, err := ParseWeight(w)
		if (err == nil) != want || err == nil && int64(got) != w {
			t.Errorf("%d: %d, %v", w, got, err)
		}
	}
}
