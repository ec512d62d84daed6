// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"culvert/internal/lb/bgpstate"
	"culvert/internal/lb/peerstate"
)

func TestCheckLB(t *testing.T) {
	vip, one, six := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.0.0.11"), netip.MustParseAddr("fd00::11")
	good := neighbor{device: "eth2", nextHop: one, resolved: true}
	facts := func(change func(*lbFacts)) lbFacts {
		f := lbFacts{
			routes: map[netip.Addr]neighbor{vip: {device: "eth1"}, one: good, six: good},
			mtu:    map[string]int{"eth1": 1500, "eth2": 1600}, strict: map[string]bool{},
		}
		if change != nil {
			change(&f)
		}
		return f
	}
	b := &LB{
		VIPs: []LBVIP{{Addr: vip, Checked: true}}, Backends: []LBBackend{{one, 20}, {six, 48}}, Source4: true, Source6: true,
	}
	unchecked := *b
	unchecked.VIPs = []LBVIP{{Addr: vip}}
	bare := *b
	bare.Source4, bare.Source6 = false, false
	type want struct {
		check, command string
		status         Status
	}
	vipOK, backendOK, routeOK := want{check: "lb-vip"}, want{check: "lb-backend"}, want{check: "lb-route"}
	exchange, wellExchange := *b, *b
	exchange.Exchanges, wellExchange.Exchanges = true, true
	exchange.Peers = []peerstate.Problem{
		{Text: "peer 10.0.0.2:9482: silent", Command: "ping -c 1 10.0.0.2", Severe: true}, {Text: "other rings", Command: "culvert lb show"},
	}
	for name, c := range map[string]struct {
		facts lbFacts
		b     *LB
		want  []want
	}{
		"no problem": {facts(nil), b, []want{vipOK, backendOK, routeOK}},
		"no checks, no route": {facts(func(f *lbFacts) { f.routes[vip] = neighbor{noRoute: unix.ENETUNREACH} }), &unchecked,
			[]want{vipOK, backendOK}},
		"checks, no route": {facts(func(f *lbFacts) { f.routes[vip] = neighbor{noRoute: unix.ENETUNREACH} }), b,
			[]want{vipOK, backendOK, {"lb-route", "ip route add 192.0.2.1 via GATEWAY", Fail}}},
		"VIP of this host": {facts(func(f *lbFacts) {
			f.routes[vip] = neighbor{local: true, device: "lo"}
			f.own = map[netip.Addr]ownAddress{vip: {netip.PrefixFrom(vip, 32), "lo"}}
		}), b,
			[]want{{"lb-vip", "ip address del 192.0.2.1/32 dev lo", Fail}, backendOK, routeOK}},
		"VIP of this host by a route of type local": {facts(func(f *lbFacts) { f.routes[vip] = neighbor{local: true, device: "lo"} }), b,
			[]want{{"lb-vip", "ip route show table local 192.0.2.1", Fail}, backendOK, routeOK}},
		"no route to a backend": {facts(func(f *lbFacts) { f.routes[one] = neighbor{noRoute: unix.ENETUNREACH} }), b,
			[]want{vipOK, {"lb-backend", "ip route add 10.0.0.11", Fail}, routeOK}},
		"backend of this host": {facts(func(f *lbFacts) { f.routes[one] = neighbor{local: true, device: "lo"} }), b,
			[]want{vipOK, {"lb-backend", "ip -brief", Fail}, routeOK}},
		"next hop not resolved": {facts(func(f *lbFacts) {
			f.routes[six] = neighbor{device: "eth2", nextHop: netip.MustParseAddr("fd00::1")}
		}), b,
			[]want{vipOK, {"lb-backend", "ping -c 1 -I eth2 fd00::1", Warn}, routeOK}},
		"strict rp_filter on the way to backends": {facts(func(f *lbFacts) { f.strict["eth2"] = true }), b,
			[]want{vipOK, backendOK, routeOK, {"lb-answers", "net.ipv4.conf.eth2.rp_filter=2", Warn}}},
		"strict rp_filter, no checks":            {facts(func(f *lbFacts) { f.strict["eth2"] = true }), &unchecked, []want{vipOK, backendOK}},
		"strict rp_filter on the way to the VIP": {facts(func(f *lbFacts) { f.strict["eth1"] = true }), b, []want{vipOK, backendOK, routeOK}},
		"no prefix for sources":                  {facts(nil), &bare, []want{vipOK, backendOK, routeOK, {"lb-source", "", Warn}}},
		"peers of whom one is silent and one has other rings": {facts(nil), &exchange, []want{vipOK, backendOK, routeOK,
			{"lb-peers", "ping -c 1 10.0.0.2", Fail}, {"lb-peers", "culvert lb show", Warn}}},
		"all peers are well": {facts(nil), &wellExchange, []want{vipOK, backendOK, routeOK, {"lb-peers", "", OK}}},
		"MTU too small": {facts(func(f *lbFacts) { f.mtu["eth2"] = 1547 }), b,
			[]want{vipOK, backendOK, routeOK, {"lb-mtu", "ip link set dev eth2 mtu 1548", Warn}}},
	} {
		t.Run(name, func(t *testing.T) {
			found := checkLB(c.facts, c.b)
			if len(found) != len(c.want) {
				t.Fatalf("got %+v, want %d findings", found, len(c.want))
			}
			for n, f := range found {
				w := c.want[n]
				if f.Check != w.check || f.Status != w.status || f.Finding == "" || (f.Command == "") != (w.command == "") || !strings.Contains(f.Command, w.command) {
					t.Errorf("got %+v, want %+v", f, w)
				}
			}
		})
	}
}

// TestReadLB has a host that has the VIP as an address, and three backends: one resolved, one unresolved, and one without a
// route.
func TestReadLB(t *testing.T) {
	inNamespace(t)
	sh(t, `ip link set lo up; ip address add 192.0.2.1/32 dev lo; ip link add eth2 type veth peer name eth2p
		ip link set eth2 up; ip link set eth2p up; ip address add 10.0.0.1/24 dev eth2
		ip neigh replace 10.0.0.11 lladdr 02:00:00:00:00:11 dev eth2 nud permanent; echo 1 > /proc/sys/net/ipv4/conf/eth2/rp_filter`)
	vip, known, unknown, away := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.0.0.11"), netip.MustParseAddr("10.0.0.12"), netip.MustParseAddr("10.9.9.9")
	b := &LB{VIPs: []LBVIP{{Addr: vip}}, Backends: []LBBackend{{known, 20}, {unknown, 20}, {away, 20}}}
	f := readLB(b)
	if !f.routes[vip].local || !f.routes[known].resolved || f.routes[unknown].resolved || f.routes[away].noRoute == nil || f.mtu["eth2"] != 1500 || !f.strict["eth2"] {
		t.Errorf("got %+v", f)
	}
	if got := f.own[vip]; got != (ownAddress{netip.MustParsePrefix("192.0.2.1/32"), "lo"}) {
		t.Errorf("the VIP's address is %+v", got)
	}
	// An address is deleted by its prefix and device, even though the kernel's route to it names the loopback.
	own := netip.MustParseAddr("10.0.0.1")
	f = readLB(&LB{VIPs: []LBVIP{{Addr: own}}})
	if got := checkVIPLocal(f, &LB{VIPs: []LBVIP{{Addr: own}}}); got.Command != "give the VIP another address: this one is that of eth2" {
		t.Errorf("got %+v", got)
	}
	f = readLB(b)
	if d := f.devices(b); len(d) != 1 || d[0] != "eth2" {
		t.Errorf("got %v", d)
	}
}

// TestNameRunning wants to read of each finding that it is not about the file.
func TestNameRunning(t *testing.T) {
	found := []Finding{{Finding: "no VIP is an address of this host"}}
	if nameRunning(found); found[0].Finding != "of what runs, not of the file: no VIP is an address of this host" {
		t.Errorf("%q", found[0].Finding)
	}
}

// TestBGPAddress wants another command for a session whose address this host lacks.
func TestBGPAddress(t *testing.T) {
	for cause, want := range map[string]string{
		"dial tcp: bind: cannot assign requested address": "ip address show",
		"dial tcp: connection refused":                    "ping -c 1 192.0.2.9",
	} {
		found := checkBGP([]bgpstate.Session{{Neighbor: netip.MustParseAddr("192.0.2.9"), State: "active", Error: cause}})
		if len(found) != 1 || found[0].Status != Fail || !strings.HasPrefix(found[0].Command, want) {
			t.Errorf("%s: %+v, want %q", cause, found, want)
		}
	}
}
