// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"

	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
)

// TestTablesOf compiles the tables of options, VIPs, checks and backends again, and wants the same.
func TestTablesOf(t *testing.T) {
	text := func(v any) string {
		t.Helper()
		b, err := toml.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	normal, err := (&lbplane.Options{}).Normal()
	if err != nil {
		t.Fatal(err)
	}
	if s := text(TableOf(*normal, lb.State{})); s != "" {
		t.Errorf("the defaults are written: %s", s)
	}
	options := lbplane.Options{
		RingSize: 1021, Flows: 7, VIPs: 3, Backends: 9, InsertRate: 11, IdleNew: 61 * time.Second, IdleTCP: 2 * time.Hour, IdleUDP: 90 * time.Minute,
		IdleClosing: lbplane.DefaultIdleClosing, Unclaimed: lbplane.Pass,
	}
	check := func(c lb.Check) *lb.Check {
		c = c.WithDefaults()
		return &c
	}
	state := lb.State{Source4: netip.MustParsePrefix("10.200.0.7/32"), Source6: netip.MustParsePrefix("fd00:200::/64"), VIPs: []lb.VIP{
		{
			Service: lb.Service{Addr: netip.MustParseAddr("192.0.2.1"), Protocol: lb.TCP}, Hash: lb.HashSource, OnFailure: lb.FailMove, Encap: lb.EncapGUE,
			VLANs: []uint16{7, 3}, Check: check(lb.Check{Type: "tcp", Port: 80, Interval: 59 * time.Minute, Timeout: 1500 * time.Millisecond, Rise: 100,
				Send: "a\nb'\"\\\x00\x7f é", Expect: " "}),
			Backends: []lb.Backend{
				{Addr: netip.MustParseAddr("10.0.0.12"), Encap: lb.EncapGUE, GUEPort: lb.GUEPort, Weight: 1},
				{Addr: netip.MustParseAddr("10.0.0.11"), Encap: lb.EncapGUE, GUEPort: 1, Weight: lb.MaxWeight},
				{Addr: netip.MustParseAddr("fd00::1"), Encap: lb.EncapIPIP},
			},
		},
		{
			Service: lb.Service{Addr: netip.MustParseAddr("2001:db8::1"), Port: 443, Protocol: lb.UDP}, Hash: lb.HashSourcePort, OnFailure: lb.FailKeep,
			Encap: lb.EncapIPIP, ServerID: 2, IDConfig: 6, Check: check(lb.Check{Type: "https", Path: "/a?b='\"", Host: "h:8", Status: "204"}),
			Backends: []lb.Backend{{Addr: netip.MustParseAddr("fd00::2"), Encap: lb.EncapL2, Weight: 5, ServerID: "0aFF"}},
		},
	}}
	file := lbHead + text(TableOf(options, state))
	for _, v := range state.VIPs {
		file += "[[lb.vip]]\n" + text(VIPTableOf(v)) + "[lb.vip.check]\n" + text(CheckTableOf(*v.Check))
		for _, b := range v.Backends {
			file += "[[lb.vip.backend]]\n" + text(BackendTableOf(b, v))
		}
	}
	p, err := compile(t, file)
	if err != nil {
		t.Fatalf("%v in\n%s", err, file)
	}
	for n := range p.state.VIPs {
		p.state.VIPs[n].File = false
		for m := range p.state.VIPs[n].Backends {
			p.state.VIPs[n].Backends[m].File = false
		}
	}
	if !reflect.DeepEqual(p.state, state) || !reflect.DeepEqual(p.options, options) {
		t.Errorf("from\n%sgot %+v\n%+v\nwant %+v\n%+v", file, p.state, p.options, state, options)
	}
}
