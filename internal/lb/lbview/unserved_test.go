// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"bytes"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"culvert/internal/datapath"
	"culvert/internal/lb/lbplane"
	"culvert/internal/show/usage"
)

func sysctl(t *testing.T, name, value string) {
	t.Helper()
	must(t, os.WriteFile("/proc/sys/net/"+name, []byte(value), 0))
}

// TestExplainUnserved has VIPs without backends, and changes the routes to their addresses. Packets are explained before they are
// sent.
func TestExplainUnserved(t *testing.T) {
	for mode, unclaimed := range map[string]lbplane.Unclaimed{
		"reject": lbplane.Reject, "drop": lbplane.Drop, "pass": lbplane.Pass,
	} {
		t.Run(mode, func(t *testing.T) {
			b := newBed(t, lbplane.Options{RingSize: 17, Flows: 100, Unclaimed: unclaimed},
				vip(t, "192.0.2.10:80/tcp", nil), vip(t, "[2001:db8::10]:53/udp", nil))
			sysctl(t, "ipv6/conf/lb0/disable_ipv6", "0")
			drop := map[bool]string{true: "pass lb-empty", false: "drop lb-empty"}[mode == "pass"]
			const pass = "pass lb-empty"
			unclaimed := map[string]string{"reject": "fwd lb-unreachable", "drop": "drop lb-unclaimed", "pass": " "}[mode]
			const next = " " // to the next stage
			for _, step := range []struct {
				what   string
				change func()
				want   string
				other  string // for another port or protocol
			}{
				{"forwarding off", func() {
					ip(t, "route add 192.0.2.10 via 10.0.0.11 dev out0")
					ip(t, "route add 2001:db8::10 via fd00::11 dev out0")
				}, pass, next},
				{"a route", func() {
					for _, s := range []string{"ipv4/conf/all/forwarding", "ipv6/conf/all/forwarding"} {
						sysctl(t, s, "1")
					}
				}, drop, unclaimed},
				{"a route back", func() {
					ip(t, "addr add 10.1.0.1/24 dev lb0")
					ip(t, "route replace 192.0.2.10 dev lb0")
					ip(t, "route replace 2001:db8::10 dev lb0")
				}, drop, unclaimed},
				{"a blackhole", func() {
					ip(t, "route del 192.0.2.10")
					ip(t, "-6 route del 2001:db8::10")
					ip(t, "route add blackhole 192.0.2.10")
					ip(t, "-6 route add blackhole 2001:db8::10")
				}, pass, next},
				{"its own address", func() {
					ip(t, "addr add 192.0.2.10/32 dev lo")
					ip(t, "addr add 2001:db8::10/128 dev lo nodad")
					for !strings.Contains(ipOut(t, "-6 route show table local"), "2001:db8::10") {
						time.Sleep(time.Millisecond) // the kernel adds that route with a delay, also without DAD
					}
				}, pass, next},
			} {
				step.change()
				for to, want := range map[string]string{
					"192.0.2.10:80/tcp": step.want, "[2001:db8::10]:53/udp": step.want,
					"192.0.2.10:81/tcp": step.other, "192.0.2.10:80/udp": step.other, "[2001:db8::10]:53/tcp": step.other,
					"192.0.2.11:80/tcp": next,
				} {
					client, to := netip.MustParseAddrPort("203.0.113.7:1234"), service(t, to)
					if to.Addr.Is6() {
						client = netip.MustParseAddrPort("[2001:db8:9::7]:1234")
					}
					e, err := b.view.explain(to, client, "")
					must(t, err)
					if got := e.Verdict + " " + e.Reason; got != want {
						t.Errorf("%s, %s: explained as %q, want %q: %s", step.what, to, got, want, e.Text)
					}
					if want == next {
						want = "pass other"
					}
					if got, _ := b.run(b.packet(client, to, &layers.TCP{ACK: true}, 0)); got != want {
						t.Errorf("%s, %s: counted as %q, want %q", step.what, to, got, want)
					}
				}
			}
		})
	}
}

// TestExplainUnanswered has packets from sources that get no answer. They are dropped.
func TestExplainUnanswered(t *testing.T) {
	b := newBed(t, lbplane.Options{RingSize: 17, Flows: 100}, vip(t, "192.0.2.10:80/tcp", nil), vip(t, "[2001:db8::10]:53/udp", nil))
	sysctl(t, "ipv6/conf/lb0/disable_ipv6", "0")
	for _, s := range []string{"ipv4/conf/all/forwarding", "ipv6/conf/all/forwarding"} {
		sysctl(t, s, "1")
	}
	ip(t, "route add 192.0.2.10 via 10.0.0.11 dev out0")
	ip(t, "route add 2001:db8::10 via fd00::11 dev out0")
	for client, want := range map[string]string{
		"203.0.113.7": "fwd lb-unreachable", "223.255.255.255": "fwd lb-unreachable",
		"0.1.2.3": "drop lb-unclaimed", "127.0.0.1": "drop lb-unclaimed", "224.0.0.1": "drop lb-unclaimed", "255.255.255.255": "drop lb-unclaimed",
		"2001:db8:9::7": "fwd lb-unreachable", "::1:0:0": "fwd lb-unreachable",
		"::": "drop lb-unclaimed", "::1": "pass other", "ff02::1": "pass other", // the kernel does not forward packets from the last two
	} {
		client, to := netip.AddrPortFrom(netip.MustParseAddr(client), 1234), service(t, "192.0.2.10:81/tcp")
		if client.Addr().Is6() {
			to = service(t, "[2001:db8::10]:54/udp")
		}
		e, err := b.view.explain(to, client, "")
		must(t, err)
		got, _ := b.run(b.packet(client, to, &layers.TCP{ACK: true}, 0))
		explained := e.Verdict + " " + e.Reason
		if explained == " " {
			explained = "pass other"
		}
		if explained != got || got != want {
			t.Errorf("from %s: explained as %q, counted as %q, want %q", client, explained, got, want)
		}
	}
}

// TestExplainByInterface has two interfaces. The kernel forwards packets that come in by lb0 alone.
func TestExplainByInterface(t *testing.T) {
	o := lbplane.Options{RingSize: 17, Flows: 100}
	b := newBed(t, o, vip(t, "192.0.2.10:80/tcp", nil))
	b.inst.Close()
	var err error
	b.inst, err = datapath.Attach(datapath.Options{Name: "edge", Interfaces: []string{"lb0", "out0"}, Parts: []datapath.Part{lbplane.NewPart(o)}})
	must(t, err)
	b.read()
	ip(t, "route add 192.0.2.10 via 10.0.0.11 dev out0")
	sysctl(t, "ipv4/conf/lb0/forwarding", "1")
	to, client := service(t, "192.0.2.10:80/tcp"), netip.MustParseAddrPort("203.0.113.7:1234")
	for iface, want := range map[string][2]string{
		"": {" ", "dropped if it comes in by lb0, where the kernel would send it on, and goes to the kernel if by out0"}, "lb0": {"drop lb-empty", "dropped: "},
		"out0": {"pass lb-empty", "goes to the kernel: "},
	} {
		e, err := b.view.explain(to, client, iface)
		must(t, err)
		if got := e.Verdict + " " + e.Reason; got != want[0] || !strings.Contains(e.Text, want[1]) || !strings.Contains(e.Text, "no backend") {
			t.Errorf("by %q: %s, %s", iface, got, e.Text)
		}
	}
	if got, _ := b.run(b.packet(client, to, &layers.TCP{ACK: true}, 0)); got != "drop lb-empty" {
		t.Errorf("the packet was counted as %s", got)
	}
	other := service(t, "192.0.2.10:81/tcp")
	for iface, want := range map[string]string{
		"": "answered with port unreachable if it comes in by lb0, where the kernel would send it on, and goes to the kernel if by out0: " +
			"no VIP of this address takes TCP to port 81",
		"lb0":  "answered with port unreachable: no VIP of this address takes TCP to port 81, and the kernel would send it on",
		"out0": "goes to the kernel, which would not send it on: no VIP of this address takes TCP to port 81",
	} {
		e, err := b.view.explain(other, client, iface)
		must(t, err)
		if e.Text != want {
			t.Errorf("port 81 by %q: %s", iface, e.Text)
		}
	}
	err = Explain(ExplainOptions{Service: to, Client: client, Interface: "lo"}, &bytes.Buffer{})
	if !usage.Is(err) || !strings.Contains(err.Error(), "not attached to lo, but to lb0, out0") {
		t.Errorf("error is %v", err)
	}
	var out bytes.Buffer
	must(t, Explain(ExplainOptions{Service: to, Client: client, Interface: "lb0"}, &out))
	if !strings.Contains(out.String(), "\n  counted as  drop lb-empty\n") {
		t.Errorf("got %s", out.String())
	}
}
