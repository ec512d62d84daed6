// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestWrongOptions wants an error of one line for each wrong option.
func TestWrongOptions(t *testing.T) {
	for _, tt := range []struct {
		change func(o *Options, n *Neighbor)
		want   string // beginning of the error
	}{
		{func(o *Options, n *Neighbor) { o.ASN = 0 }, "BGP: our AS number is 0: give one, 64512 to 65534 are for private use"},
		{func(o *Options, n *Neighbor) { o.RouterID = netip.Addr{} }, "BGP: router ID invalid IP is not an IPv4 address: give one of this machine"},
		{func(o *Options, n *Neighbor) { o.RouterID = addr("fd09::1") }, "BGP: router ID fd09::1 is not"},
		{func(o *Options, n *Neighbor) { o.RouterID = addr("::ffff:10.9.1.1") }, "BGP: router ID ::ffff:10.9.1.1 is not"},
		{func(o *Options, n *Neighbor) { o.RouterID = addr("0.0.0.0") }, "BGP: router ID 0.0.0.0 is not"},
		{func(o *Options, n *Neighbor) { o.HoldTime = 2 * time.Second }, "BGP: hold time 2s: give whole seconds from 3 to 65535"},
		{func(o *Options, n *Neighbor) { o.HoldTime = 3500 * time.Millisecond }, "BGP: hold time 3.5s"},
		{func(o *Options, n *Neighbor) { o.HoldTime = 65536 * time.Second }, "BGP: hold time 18h12m16s"},
		{func(o *Options, n *Neighbor) { o.HoldTime = -time.Second }, "BGP: hold time -1s"},
		{func(o *Options, n *Neighbor) { o.GracefulRestart = 4096 * time.Second }, "BGP: graceful restart within 1h8m16s: give whole seconds from 1 to 4095, or 0 for none"},
		{func(o *Options, n *Neighbor) { o.GracefulRestart = 1500 * time.Millisecond }, "BGP: graceful restart within 1.5s"},
		{func(o *Options, n *Neighbor) { o.GracefulRestart = -time.Second }, "BGP: graceful restart within -1s"},
		{func(o *Options, n *Neighbor) { o.Neighbors = nil }, "BGP: no neighbors: give at least one"},
		{func(o *Options, n *Neighbor) { o.Neighbors = append(o.Neighbors, *n) }, "BGP neighbor 10.9.1.254: it is there twice"},
		{func(o *Options, n *Neighbor) { n.ASN = 0 }, "BGP neighbor 10.9.1.254: its AS number is 0"},
		{func(o *Options, n *Neighbor) { n.Address = netip.Addr{} }, "BGP neighbor invalid IP: no address"},
		{func(o *Options, n *Neighbor) { n.Address = addr("::ffff:10.9.1.254") },
			"BGP neighbor ::ffff:10.9.1.254: address ::ffff:10.9.1.254 is an IPv4-mapped one: write 10.9.1.254"},
		{func(o *Options, n *Neighbor) { n.Address = addr("fe80::1%eth0") },
			"BGP neighbor fe80::1%eth0: address fe80::1%eth0 is link-local: give a global or private one"},
		{func(o *Options, n *Neighbor) { n.Address = addr("224.0.0.5") }, "BGP neighbor 224.0.0.5: address 224.0.0.5 is not of one host"},
		{func(o *Options, n *Neighbor) { n.Address = addr("::") }, "BGP neighbor ::: address :: is not of one host"},
		{func(o *Options, n *Neighbor) { n.LocalAddress = addr("fd09:1::1") }, "BGP neighbor 10.9.1.254: local address fd09:1::1 is of the other family"},
		{func(o *Options, n *Neighbor) { n.LocalAddress = addr("::ffff:1.2.3.4") }, "BGP neighbor 10.9.1.254: local address ::ffff:1.2.3.4 is an IPv4-mapped one"},
		{func(o *Options, n *Neighbor) { n.LocalAddress = n.Address }, "BGP neighbor 10.9.1.254: it is the local address too"},
		{func(o *Options, n *Neighbor) { n.NextHop4 = addr("fd09::1") }, "BGP neighbor 10.9.1.254: IPv4 next hop fd09::1 is of the other family"},
		{func(o *Options, n *Neighbor) { n.NextHop6 = addr("10.9.1.1") }, "BGP neighbor 10.9.1.254: IPv6 next hop 10.9.1.1 is of the other family"},
		{func(o *Options, n *Neighbor) { n.NextHop6 = addr("fe80::1") }, "BGP neighbor 10.9.1.254: IPv6 next hop fe80::1 is link-local"},
		{func(o *Options, n *Neighbor) { n.Password = strings.Repeat("x", 81) }, "BGP neighbor 10.9.1.254: the password has 81 bytes, 80 at most"},
		{func(o *Options, n *Neighbor) { n.Multihop = 1 }, "BGP neighbor 10.9.1.254: multihop 1: give 2 or more, or 0 for a router on the link"},
		{func(o *Options, n *Neighbor) { n.Multihop, n.ASN = 2, asMachine }, "BGP neighbor 10.9.1.254: multihop is for routers of another AS: leave it out"},
	} {
		o := options(1, "10.9.1.254", asRouter)
		tt.change(&o, &o.Neighbors[0])
		s, err := Start(t.Context(), o)
		if err == nil {
			_ = s.Close(t.Context())
		}
		if got := fmt.Sprint(err); !strings.HasPrefix(got, tt.want) || strings.Contains(got, "\n") {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// TestWrongPrefixes wants errors for wrong prefixes, after which the prefixes are as before.
func TestWrongPrefixes(t *testing.T) {
	s, err := Start(t.Context(), options(1, "127.0.0.99", asRouter))
	check(t, err)
	defer func() { check(t, s.Close(t.Context())) }()
	check(t, s.Set(t.Context(), []netip.Prefix{netip.MustParsePrefix(vip4)}))
	for text, want := range map[string]string{
		"192.0.2.1/24":         "announce 192.0.2.1/24: it has host bits: write 192.0.2.0/24",
		"::ffff:192.0.2.1/128": "announce ::ffff:192.0.2.1/128: IPv4-mapped: write it as IPv4",
		"":                     "announce prefixes: one of them is not valid",
	} {
		p, _ := netip.ParsePrefix(text)
		if err := s.Set(t.Context(), []netip.Prefix{netip.MustParsePrefix(vip6), p}); fmt.Sprint(err) != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if got := fmt.Sprint(s.announced()); got != "["+vip4+"]" {
		t.Errorf("announced %s", got)
	}
}

// TestStartTooLate starts with a context that is done.
func TestStartTooLate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s, err := Start(ctx, options(1, "127.0.0.99", asRouter))
	if got := fmt.Sprint(err); s != nil || got != "start to speak BGP: context canceled" {
		t.Errorf("%v, %s", s, got)
	}
}
