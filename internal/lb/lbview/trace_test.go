// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"culvert/internal/capture/trace"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
)

// TestTraceIsWhatHappens explains packets after the program has had them, as a capture does.
func TestTraceIsWhatHappens(t *testing.T) {
	b := newBed(t, lbplane.Options{RingSize: 251, Flows: 5000},
		vip(t, "192.0.2.1:80/tcp", nil, "10.0.0.11 ipip 1", "10.0.0.12 gue 3", "10.0.0.13 l2 1"),
		vip(t, "[2001:db8::1]:443/udp", nil, "10.0.0.16 ipip 1", "fd00::16 gue 1"),
		vip(t, "192.0.2.10:80/tcp", nil),
	)
	e, late := NewExplainer(), NewUnclaimedExplainer()
	rng := rand.New(rand.NewPCG(3, 4))
	seen := make(map[string]int)
	for range 200 {
		to := service(t, []string{"192.0.2.1:80/tcp", "[2001:db8::1]:443/udp", "192.0.2.10:80/tcp", "192.0.2.1:81/tcp", "192.0.2.200:80/tcp"}[rng.IntN(5)])
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(rng.IntN(4))}), uint16(1024+rng.IntN(10)))
		if to.Addr.Is6() {
			client = netip.AddrPortFrom(netip.MustParseAddr("2001:db8:9::7"), client.Port())
		}
		size := []int{60, 60, 1450}[rng.IntN(3)]
		frame := b.packet(client, to, &layers.TCP{ACK: true}, size)
		got, _ := b.run(frame)
		p, err := trace.Parse(trace.Frame{Data: frame, Length: len(frame), Ingress: b.in.Index, Name: b.in.Name}, [6]byte(b.in.HardwareAddr))
		must(t, err)
		step := explainStep(t, b, e, p)
		if step.Reason == "" {
			step = explainStep(t, b, late, p)
		}
		seen[got]++
		switch {
		case step.Reason == "":
			if got != "pass other" {
				t.Errorf("%s > %s: %s, and the explanation has it go on: %s", client, to, got, step.Text)
			}
		case step.Verdict == "": // too big: its sender is told, or not
			if got != "fwd "+step.Reason && got != "drop "+step.Reason {
				t.Errorf("%s > %s: %s, explained as %s", client, to, got, step.Reason)
			}
		case got != step.Words() && got != step.Verdict+" "+step.Before:
			t.Errorf("%s > %s: %s, explained as %s: %s, %q", client, to, got, step.Words(), step.Text, step.Lookups)
		}
	}
	for _, want := range []string{"fwd lb-new", "fwd lb-flow", "fwd lb-too-big", "pass lb-empty", "pass other"} {
		if seen[want] == 0 {
			t.Errorf("nothing was counted as %s: %v", want, seen)
		}
	}
}

func explainStep(t *testing.T, b *bed, e trace.Explainer, p *trace.Packet) trace.Step {
	t.Helper()
	on, err := e.Follow(b.inst)
	must(t, err)
	if !on {
		t.Fatal("the load balancer is off")
	}
	s, err := e.Explain(p)
	must(t, err)
	return s
}

// TestTraceUnsure has packets of which it cannot be told afterwards what happened to them.
func TestTraceUnsure(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.1")
	e := &explainer{known: map[lbplane.VIPKey]lbplane.VIP{(lb.Service{Addr: a, Port: 80, Protocol: lb.TCP}).Key(): {}}}
	for _, tt := range []struct {
		p      trace.Packet
		unsure bool
	}{
		{trace.Packet{Dst: a, Protocol: trace.ICMP}, true},
		{trace.Packet{Dst: a, Protocol: trace.TCP, Ports: true, VLAN: 7}, true},
		{trace.Packet{Dst: a.Next(), Protocol: trace.ICMP}, false},
	} {
		s, err := e.Explain(&tt.p)
		if err != nil || s.Unsure != tt.unsure || s.Reason != "" {
			t.Errorf("%+v: %+v, %v", tt.p, s, err)
		}
	}
}
