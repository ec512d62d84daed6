// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"bytes"
	"encoding/json"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gopacket/gopacket/layers"

	"culvert/internal/lb"
	"culvert/internal/lb/bgpstate"
	"culvert/internal/lb/lbplane"
)

func ptr[T any](v T) *T { return &v }

func testReport(at time.Time) Report {
	hop := &Hop{IfIndex: 4, Interface: "eth2", MAC: "02:00:00:00:00:11", MTU: 1500}
	both := []string{bgpstate.FamilyIPv4, bgpstate.FamilyIPv6}
	since := at.Add(-3*time.Hour - 12*time.Minute)
	return Report{
		Router: "edge", Interfaces: []string{"eth0", "eth1"}, Served: true, RingSize: 65537, SeedID: "0123456789ab", BGPKnown: true,
		FlowTable: FlowTable{Flows: 1048576, Used: 123456, Memory: 76695552},
		BGP: []bgpstate.Session{
			{Neighbor: netip.MustParseAddr("10.0.0.253"), ASN: 65000, State: "active", Since: at.Add(-12 * time.Second), Families: both, Error: "no connection: connection refused"},
			{Neighbor: netip.MustParseAddr("10.0.0.254"), ASN: 65000, State: "established", Since: since, Families: both,
				Announced: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}},
			// A session that carries IPv6 alone.
			{Neighbor: netip.MustParseAddr("fd00::fe"), ASN: 65000, State: "established", Since: since, Families: both[1:]},
		},
		VIPs: []VIP{{
			Service: "192.0.2.1:80/tcp", State: Active, Hash: "flow", OnFailure: "keep", Encap: "ipip", Announce: true,
			AnnouncedTo: []netip.Addr{netip.MustParseAddr("10.0.0.254")},
			Check:       &lb.Check{Type: "http", Interval: time.Second},
			Events:      lbplane.Events{"untracked": 1234, "icmp": 2}, Backends: []Backend{
				{Addr: "10.0.0.11", Encap: "ipip", Weight: 1, Share: 66.7, Health: Health{State: "up", Since: &since}, NextHop: hop,
					Traffic: Traffic{1234567, 121e6, 4567}},
				{Addr: "10.0.0.12", Encap: "gue", Weight: 100, Health: Health{State: "down", Since: ptr(at.Add(-time.Second)), Why: "connection refused"}, NextHop: hop},
				{Addr: "10.0.0.113", Encap: "l2", Weight: 1, Drained: true, Health: Health{State: "unknown"}, Problem: problemHop},
			}},
			{Service: "[2001:db8::1]:443/udp", State: Down, Hash: "source", OnFailure: "move", Encap: "gue", ServerID: 2, Open: ptr[uint64](1000), Backends: []Backend{
				{Addr: "2001:db8:aaaa:bbbb::11", Encap: "gue", Weight: 1, Share: 100, Health: Health{State: "unknown"}, Open: ptr[uint64](1000), Problem: problemSource,
					NextHop: &Hop{IfIndex: 5, MAC: "02:00:00:00:00:12", VLAN: 5}, Traffic: Traffic{999999, 999e9, 999999}},
			}},
			{Service: "192.0.2.9/tcp", State: NoBackend, Hash: "flow", OnFailure: "keep", Encap: "ipip"},
		},
	}
}

func TestShowText(t *testing.T) {
	now := time.Unix(1e9, 0)
	const want = `balancer of edge on eth0, eth1  3 VIPs, 4 backends, 3 down
rings of 65,537, seed ID 0123456789ab  flow table for 1,048,576, 76.7MB  in use about 123,456
bgp 10.0.0.253 as 65000  active 12s  no connection: connection refused
bgp 10.0.0.254 as 65000  established 3h12m  announced 1
bgp fd00::fe as 65000  established 3h12m  announced 0

192.0.2.1:80/tcp  active  hash flow  ipip  on failure keep  check http each 1s  announced to 1 of 2
  BACKEND     ENCAP  WEIGHT  SHARE  HEALTH    PACKETS  BYTES  FLOWS  NEXT HOP
  10.0.0.11   ipip        1  66.7%  up 3h12m    1.23M  121MB  4.57k  eth2 02:00:00:00:00:11
  10.0.0.12   gue       100   0.0%  down 1s         0     0B      0  eth2 02:00:00:00:00:11
    connection refused
  10.0.0.113  l2      drain   0.0%  -               0     0B      0  not resolved
  events  icmp 2  untracked 1,234

[2001:db8::1]:443/udp  down  hash source  gue  on failure move  quic 2  not announced
  BACKEND                 ENCAP  WEIGHT   SHARE  HEALTH  PACKETS  BYTES  FLOWS   OPEN
  2001:db8:aaaa:bbbb::11  gue         1  100.0%  -         1.00M  999GB  1.00M  1.00k
    via ifindex 5 02:00:00:00:00:12 vlan 5
    no source address to send from

192.0.2.9/tcp  no backend  hash flow  ipip  on failure keep  not announced
  no backends: packets are dropped, or go to the kernel; add one with 'culvert lb backend add'`
	lines := testReport(now).lines(now)
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, line := range lines {
		if utf8.RuneCountInString(line) > width {
			t.Errorf("too long: %s", line)
		}
	}
	silent := testReport(now)
	silent.BGP, silent.BGPKnown = nil, false
	if got := strings.Join(silent.lines(now), "\n"); !strings.Contains(got, "\nbgp  not known: ") || !strings.Contains(got, "each 1s  announced: not known\n") ||
		strings.Contains(got, "[lb.bgp]") || !strings.Contains(got, "quic 2  not announced\n") {
		t.Errorf("got %s", got)
	}
	alone := Report{Router: "edge", Interfaces: []string{"eth0"}}
	if got := strings.Join(alone.lines(now), "\n"); !strings.Contains(got, "no VIPs: add one with 'culvert lb vip add'") ||
		!strings.Contains(got, "no process serves it") {
		t.Errorf("got %s", got)
	}
}

// TestShow has a load balancer with known flows, a backend that is down and has no next hop, and a drained one.
func TestShow(t *testing.T) {
	b := newBed(t, lbplane.Options{RingSize: 1009, Flows: 1000},
		vip(t, "192.0.2.1:80/tcp", func(v *lb.VIP) {
			v.Check = &lb.Check{Type: "tcp", Interval: time.Second, Timeout: time.Second / 2, Rise: 2, Fall: 2}
		},
			"10.0.0.11 ipip 1", "fd00::11 gue 3", "10.0.0.12 l2 0"),
		vip(t, "192.0.2.7/udp", func(v *lb.VIP) { v.Drained = true }, "10.0.0.13 ipip 1"), vip(t, "192.0.2.8/udp", nil))
	to := service(t, "192.0.2.1:80/tcp")
	for n := range 40 {
		client := netip.AddrPortFrom(netip.MustParseAddr("203.0.113.7"), uint16(1024+n/2))
		b.run(b.packet(client, to, &layers.TCP{ACK: true}, 10))
	}
	first := b.view.state.VIPs[0]
	if first.Service != to {
		t.Fatalf("got %v first", first.Service)
	}
	broken := first.Backends[0].ID
	must(t, b.view.plane.SetHealth(lbplane.Health{Backend: broken, State: lbplane.Down, Since: time.Now(), Checks: 9, Failures: 2, Text: "refused"}))
	backend, err := b.view.plane.Backend(broken.Number())
	must(t, err)
	backend.Hop = lbplane.Hop{}
	must(t, b.view.plane.SetBackend(backend))

	var out bytes.Buffer
	must(t, Show(ShowOptions{Flows: true, JSON: true}, &out))
	var r Report
	must(t, json.Unmarshal(out.Bytes(), &r))
	if r.Router != "edge" || r.RingSize != 1009 || r.FlowTable.Flows != 1000 || r.FlowTable.Memory != lbplane.Memory(b.inst) ||
		r.FlowTable.Used != 20 || len(r.VIPs) != 3 {
		t.Fatalf("got %+v", r)
	}
	v := r.VIPs[0]
	if v.State != Active || !v.Announce || v.Packets != 40 || v.Traffic.Flows != 20 || v.Open == nil || *v.Open != 20 || v.From != "hand" ||
		v.Bytes != 40*50 || len(v.Backends) != 3 {
		t.Errorf("got %+v", v)
	}
	down, up, drained := v.Backends[0], v.Backends[1], v.Backends[2]
	if down.Health.State != "down" || down.Health.Why != "refused" || down.Health.Checks != 9 || down.NextHop != nil || down.Problem != problemHop {
		t.Errorf("got %+v", down)
	}
	if up.Health.State != "unknown" || up.NextHop == nil || up.NextHop.Interface != "out0" || up.NextHop.MAC != "02:00:00:00:06:11" ||
		up.Source != "fd00:200::/96" || math.Abs(up.Share-75) > 1 || up.GUEPort != 6080 {
		t.Errorf("got %+v, next hop %+v", up, up.NextHop)
	}
	if drained.Share != 0 || drained.Packets != 0 || drained.Source != "" || *drained.Open != 0 {
		t.Errorf("got %+v", drained)
	}
	if r.VIPs[1].State != Drained || r.VIPs[1].Announce || r.VIPs[2].State != NoBackend {
		t.Errorf("got %s and %s", r.VIPs[1].State, r.VIPs[2].State)
	}

	out.Reset()
	must(t, Show(ShowOptions{On: "edge", Service: &to}, &out))
	for _, want := range []string{"balancer of edge on lb0  1 VIP, 3 backends, 1 down, 1 of weight 0\n", "\n192.0.2.1:80/tcp  active  ", "not resolved\n    refused\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "192.0.2.7") {
		t.Errorf("got\n%s", out.String())
	}
	if err := Show(ShowOptions{Service: ptr(service(t, "192.0.2.1:81/tcp"))}, &out); err == nil || !strings.Contains(err.Error(), "no VIP 192.0.2.1:81/tcp on edge") {
		t.Errorf("error is %v", err)
	}
	c, err := Count(b.inst)
	must(t, err)
	if c.VIPs != 3 || c.Backends != 4 || c.Down != 1 || c.Drained != 0 || c.Weightless != 1 || c.Used != 20 || !slices.Equal(c.DrainedVIPs, []string{"192.0.2.7/udp"}) {
		t.Errorf("got %+v", c)
	}
}

// TestFlows lists and counts flows with each option.
func TestFlows(t *testing.T) {
	b := newBed(t, lbplane.Options{RingSize: 1009, Flows: 1000},
		vip(t, "192.0.2.1/tcp", nil, "10.0.0.11 ipip 1", "10.0.0.12 ipip 1"), vip(t, "[2001:db8::1]:53/udp", nil, "10.0.0.11 gue 1"))
	web, dns := service(t, "192.0.2.1:80/tcp"), service(t, "[2001:db8::1]:53/udp")
	for n := range 30 {
		to := web
		if n%3 == 0 {
			to.Port = 443
		}
		b.run(b.packet(netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(n)}), 1234), to, &layers.TCP{SYN: true}, 0))
	}
	for range 2 {
		b.run(b.packet(netip.MustParseAddrPort("[2001:db8:9::9]:4321"), dns, nil, 20))
	}
	list := func(o FlowsOptions) (flows []Flow) {
		t.Helper()
		o.JSON = true
		var out bytes.Buffer
		must(t, Flows(o, &out))
		var got struct{ Flows []Flow }
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.Flows == nil {
			t.Fatalf("%v: %s", err, out.String())
		}
		return got.Flows
	}
	for _, tt := range []struct {
		name string
		o    FlowsOptions
		want int
	}{
		{"all", FlowsOptions{}, 31},
		{"-n 7", FlowsOptions{Limit: 7}, 7},
		{"to port 80", FlowsOptions{Service: &web}, 20},
		{"to all ports", FlowsOptions{Service: ptr(service(t, "192.0.2.1/tcp"))}, 30},
		{"of a network without clients", FlowsOptions{Client: netip.MustParsePrefix("198.51.100.0/24")}, 0},
	} {
		if got := len(list(tt.o)); got != tt.want {
			t.Errorf("%s: %d flows, want %d", tt.name, got, tt.want)
		}
	}
	one, two := list(FlowsOptions{Backend: netip.MustParseAddr("10.0.0.11"), Service: ptr(service(t, "192.0.2.1/tcp"))}), list(FlowsOptions{Backend: netip.MustParseAddr("10.0.0.12")})
	if len(one)+len(two) != 30 || len(one) == 0 || len(two) == 0 {
		t.Errorf("%d and %d flows of the backends", len(one), len(two))
	}
	got := list(FlowsOptions{Client: netip.MustParsePrefix("2001:db8:9::/48")})
	if len(got) != 1 || got[0] != (Flow{Client: "[2001:db8:9::9]:4321", Service: "[2001:db8::1]:53/udp", Backend: "10.0.0.11", State: "udp", Idle: got[0].Idle}) {
		t.Errorf("got %+v", got)
	}
	var out bytes.Buffer
	must(t, Flows(FlowsOptions{Client: netip.MustParsePrefix("203.0.113.1/32")}, &out))
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "CLIENT  ") || !strings.HasPrefix(lines[1], "203.0.113.1:1234          192.0.2.1:80/tcp          10.0.0.1") ||
		!strings.Contains(lines[1], "  new      ") {
		t.Errorf("got\n%s", out.String())
	}

	// The flows of a deleted backend are counted without one.
	must(t, lb.Edit(b.inst, func(s *lb.State) error {
		for n := range s.VIPs {
			if s.VIPs[n].Service == service(t, "192.0.2.1/tcp") {
				s.VIPs[n].Backends = s.VIPs[n].Backends[1:]
			}
		}
		return nil
	}))
	out.Reset()
	must(t, Flows(FlowsOptions{Count: true, JSON: true}, &out))
	var sums struct {
		Flows  uint64
		Counts []FlowCount
	}
	must(t, json.Unmarshal(out.Bytes(), &sums))
	by := make(map[string]uint64)
	for _, c := range sums.Counts {
		by[c.VIP+" "+c.Backend] = c.Flows
	}
	if sums.Flows != 31 || len(by) != 3 || by["192.0.2.1/tcp "]+by["192.0.2.1/tcp 10.0.0.12"] != 30 || by["[2001:db8::1]:53/udp 10.0.0.11"] != 1 ||
		by["192.0.2.1/tcp "] != uint64(len(one)) {
		t.Errorf("got %+v", sums)
	}
	out.Reset()
	must(t, Flows(FlowsOptions{Count: true}, &out))
	if !strings.Contains(out.String(), "(gone)") || !strings.Contains(out.String(), "\nall                                 31\n") {
		t.Errorf("got\n%s", out.String())
	}
	if err := Flows(FlowsOptions{Backend: netip.MustParseAddr("10.0.0.99")}, &out); err == nil || !strings.Contains(err.Error(), "no backend 10.0.0.99 on edge") {
		t.Errorf("error is %v", err)
	}
}
