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

// TestExplainUnserved has VIPs without backends, whose addresses lead here and there: what is said is what happens.
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
			for _, step := range []struct {
				what   string
				change func()
				want   string
			}{
				{"forwarding off", func() {
					ip(t, "route add 192.0.2.10 via 10.0.0.11 dev out0")
					ip(t, "route add 2001:db8::10 via fd00::11 dev out0")
				}, pass},
				{"a way", func() {
					for _, s := range []string{"ipv4/conf/all/forwarding", "ipv6/conf/all/forwarding"} {
						sysctl(t, s, "1")
					}
				}, drop},
				{"a way back", func() {
					ip(t, "addr add 10.1.0.1/24 dev lb0")
					ip(t, "route replace 192.0.2.10 dev lb0")
					ip(t, "route replace 2001:db8::10 dev lb0")
				}, drop},
				{"a blackhole", func() {
					ip(t, "route del 192.0.2.10")
					ip(t, "-6 route del 2001:db8::10")
					ip(t, "route add blackhole 192.0.2.10")
					ip(t, "-6 route add blackhole 2001:db8::10")
				}, pass},
				{"its own address", func() {
					ip(t, "addr add 192.0.2.10/32 dev lo")
					ip(t, "addr add 2001:db8::10/128 dev lo nodad")
					for !strings.Contains(ipOut(t, "-6 route show table local"), "2001:db8::10") {
						time.Sleep(time.Millisecond) // the kernel makes that route later, also without DAD
					}
				}, pass},
			} {
				step.change()
				for client, to := range map[string]string{"203.0.113.7:1234": "192.0.2.10:80/tcp", "[2001:db8:9::7]:1234": "[2001:db8::10]:53/udp"} {
					client, to := netip.MustParseAddrPort(client), service(t, to)
					e, err := b.view.explain(to, client, "")
					must(t, err)
					if got := e.Verdict + " " + e.Reason; got != step.want {
						t.Errorf("%s, %s: %q is said, want %q", step.what, to, got, step.want)
					}
					if got, _ := b.run(b.packet(client, to, &layers.TCP{ACK: true}, 0)); got != step.want {
						t.Errorf("%s, %s: it left as %q, want %q", step.what, to, got, step.want)
					}
				}
			}
		})
	}
}

// TestExplainByInterface has one interface that the kernel forwards from, and one that it does not.
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
		t.Errorf("it left as %s", got)
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
