// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
)

// TestLBViews shows a load balancer without a process that has forwarded packets.
func TestLBViews(t *testing.T) {
	b := newLBBed(t)
	const vip4, vip6 = "192.0.2.1:80/tcp", "[2001:db8::1]:80/tcp"
	b.expect(0, "attached", "attach", "-c", b.file(lbConfig), "lb0")
	for range 3 {
		b.send(netip.MustParseAddrPort("192.0.2.1:80"), 7)
		b.send(netip.MustParseAddrPort("[2001:db8::1]:80"), 7)
	}
	b.wait("packets arrive", func() bool { return b.all.Load() == 6 })

	_, shown, _ := culvert(t, "lb", "show", "--flows")
	for _, want := range []string{
		"balancer of culvert on lb0  2 VIPs, 3 backends\n", "\n192.0.2.1:80/tcp  active  hash flow  ipip  on failure keep  not announced\n",
		"\n  10.0.0.11  ipip        1  ", "\n  10.0.0.12  gue         3  ", "  out0 02:00:00:00:00:0b\n", "no process serves it: backends are not checked, next hops stay as they are, nothing is announced",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in\n%s", want, shown)
		}
	}
	var report struct {
		VIPs []struct {
			VIP            string
			Packets, Flows uint64
		}
	}
	_, shown, _ = culvert(t, "lb", "show", "-j", vip6)
	if err := json.Unmarshal([]byte(shown), &report); err != nil || len(report.VIPs) != 1 || report.VIPs[0].VIP != vip6 || report.VIPs[0].Packets != 3 || report.VIPs[0].Flows != 1 {
		t.Errorf("%v: %s", err, shown)
	}
	b.expect(0, "\n  lb  2 VIPs, 3 backends  flow table for 1,048,576, 76.7MB  in use about 2\n", "status")
	b.expect(0, `"flows_used":2`, "status", "-j")
	b.expect(0, `"lb":{"vips":2,`, "status", "-j")

	var flows struct {
		Flows []struct{ Client, Service, Backend, State string }
	}
	_, shown, _ = culvert(t, "lb", "flows", vip4, "-j")
	if err := json.Unmarshal([]byte(shown), &flows); err != nil || len(flows.Flows) != 1 || flows.Flows[0].Service != vip4 {
		t.Fatalf("%v: %s", err, shown)
	}
	flow := flows.Flows[0]
	b.expect(0, "> 192.0.2.1:80/tcp: to "+flow.Backend+", by the flow table\n", "lb", "explain", vip4, flow.Client)
	b.expect(0, `"by":"table"`, "lb", "explain", vip4, flow.Client, "-j")
	b.expect(0, "> 192.0.2.1:80/udp: goes to the kernel, which would not send it on: no VIP of this address takes UDP to port 80\n", "lb", "explain", "192.0.2.1:80/udp", flow.Client)
	b.expect(0, "> 192.0.2.9:80/tcp: goes on to the next stage: no VIP has this address\n", "lb", "explain", "192.0.2.9:80/tcp", flow.Client)
	b.expect(0, "added", "filter", "add", "count", "tcp")
	b.expect(0, "\nnot asked: the filter in front with 1 rule, see 'culvert filter test'\n", "lb", "explain", vip4, flow.Client)
	b.expect(0, `"not_asked":["the filter in front`, "lb", "explain", vip4, flow.Client, "-j")
	b.expect(0, "deleted", "filter", "flush")
	b.expect(0, flow.Client, "lb", "flows", "--client", "0.0.0.0/0", "--backend", flow.Backend, "-n", "1")
	b.expect(0, "\nall                                  2\n", "lb", "flows", "--totals")
	b.lb(0, "drained", "drain "+vip4+" "+flow.Backend)
	b.expect(0, ", by the flow table\n", "lb", "explain", vip4, flow.Client)
	b.lb(0, "deleted", "backend del "+vip4+" "+flow.Backend)
	b.expect(0, "does not count: its backend has gone\n", "lb", "explain", vip4, flow.Client)

	b.lb(2, "VIP 192.0.2.1:80 lacks its protocol: there is "+vip4+"\n", "explain 192.0.2.1:80 203.0.113.7:1")
	b.lb(2, "VIP 192.0.2.1:81 lacks its protocol: write 192.0.2.1:81/tcp or 192.0.2.1:81/udp\n", "explain 192.0.2.1:81 203.0.113.7:1")
	b.lb(2, "203.0.113.7 is no client: write address and port", "explain "+vip4+" 203.0.113.7")
	b.lb(2, "has no port: say which one", "explain 192.0.2.1/tcp 203.0.113.7:1")
	b.lb(2, "one family", "explain "+vip6+" 203.0.113.7:1")
	b.lb(2, "x is neither an address nor a prefix", "flows --client x")
	b.lb(2, "use a number of flows", "flows -n -1")
	for _, verb := range []string{"show 192.0.2.1", "flows 192.0.2.1", "drain 192.0.2.1", "vip del 192.0.2.1", "backend del 192.0.2.1 10.0.0.11"} {
		b.lb(2, "VIP 192.0.2.1 lacks its protocol: there is "+vip4+"\n", verb)
	}
	b.lb(2, "VIP 192.0.2.9 lacks its protocol: write 192.0.2.9/tcp or 192.0.2.9/udp\n", "show 192.0.2.9")
	b.lb(1, "no VIP 192.0.2.1/tcp on culvert: of this address there is "+vip4+"\n", "show 192.0.2.1/tcp")
	b.lb(1, "no VIP 192.0.2.1:80/udp: of this address there is "+vip4+"\n", "drain 192.0.2.1:80/udp")
	b.lb(1, "no VIP 192.0.2.9/udp on culvert", "show 192.0.2.9/udp")
	b.lb(1, "no backend 10.0.0.99", "flows --backend 10.0.0.99")
	b.lb(1, "no data plane nobody", "show --on nobody")
}

// TestLBBackendHere gives a VIP a backend that is this host: the command warns, and the reason why it gets no packets is that.
func TestLBBackendHere(t *testing.T) {
	b := newLBBed(t)
	b.expect(0, "attached", "attach", "-c", b.file(lbConfig), "lb0")
	for vip, backend := range map[string]string{"192.0.2.1:80/tcp": "10.0.0.1", "[2001:db8::1]:80/tcp": "fd00::1"} {
		b.lb(0, "\nthis host has the address "+backend+": no packet gets to that backend", "backend add "+vip+" "+backend)
		b.lb(0, "    this host has the address "+backend+" itself: packets are redirected to other hosts only\n", "show "+vip)
	}
	_, out, errs := culvert(t, "lb", "backend", "add", "192.0.2.1:80/tcp", "10.0.0.13")
	if strings.Contains(out+errs, "this host") {
		t.Errorf("another host's address: %s%s", out, errs)
	}
}
