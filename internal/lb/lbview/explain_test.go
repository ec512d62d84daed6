// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/show/usage"
)

// sentFrame has the addresses and ports of the outer header of a frame.
type sentFrame struct {
	mac                 string
	source, destination string
	sourcePort, port    uint16
}

func decode(t *testing.T, frame []byte) (l sentFrame) {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	l.mac = p.LinkLayer().(*layers.Ethernet).DstMAC.String()
	n := p.NetworkLayer()
	if n == nil {
		t.Fatalf("the frame has no IP packet: %x", frame)
	}
	src, _ := netip.AddrFromSlice(n.NetworkFlow().Src().Raw())
	dst, _ := netip.AddrFromSlice(n.NetworkFlow().Dst().Raw())
	l.source, l.destination = src.String(), dst.String()
	if udp, ok := p.TransportLayer().(*layers.UDP); ok && udp.DstPort == 6080 {
		l.sourcePort, l.port = uint16(udp.SrcPort), uint16(udp.DstPort)
	}
	return l
}

// TestExplainIsWhatHappens explains packets of random clients before it sends them, while backends and rings change.
func TestExplainIsWhatHappens(t *testing.T) {
	b := newBed(t, lbplane.Options{RingSize: 251, Flows: 5000},
		vip(t, "192.0.2.1:80/tcp", nil, "10.0.0.11 ipip 1", "10.0.0.12 gue 3", "10.0.0.13 l2 1", "fd00::11 gue 1", "fd00::12 ipip 1"),
		vip(t, "192.0.2.1/tcp", func(v *lb.VIP) { v.Hash, v.OnFailure = lb.HashSource, lb.FailMove },
			"10.0.0.14 ipip 1", "10.0.0.15 gue 1"),
		vip(t, "[2001:db8::1]:443/udp", nil, "10.0.0.16 ipip 1", "fd00::16 gue 1", "fd00::17 ipip 0"),
		vip(t, "192.0.2.9:53/udp", nil, "10.0.0.17 ipip 1", "10.0.0.18 ipip 1"),
		vip(t, "192.0.2.10:80/tcp", nil),
		vip(t, "192.0.2.11/tcp", func(v *lb.VIP) { v.Hash = lb.HashSourcePort }, "10.0.0.11 ipip 1", "10.0.0.12 gue 1", "10.0.0.13 ipip 1"),
	)
	rng := rand.New(rand.NewPCG(1, 2))
	services := []string{"192.0.2.1:80/tcp", "192.0.2.1:81/tcp", "192.0.2.1:4433/tcp", "[2001:db8::1]:443/udp", "192.0.2.9:53/udp",
		"192.0.2.10:80/tcp", "192.0.2.11:21/tcp", "192.0.2.11:2121/tcp", "192.0.2.1:80/udp", "192.0.2.200:80/tcp"}
	seen := make(map[string]int)
	for n := range 2000 {
		if n%7 == 0 {
			b.disturb(rng)
		}
		to := service(t, services[rng.IntN(len(services))])
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(rng.IntN(8))}), uint16(1024+rng.IntN(20)))
		if to.Addr.Is6() {
			a := netip.MustParseAddr("2001:db8:9::").As16()
			a[15] = byte(rng.IntN(8))
			client = netip.AddrPortFrom(netip.AddrFrom16(a), client.Port())
		}
		e, err := b.view.explain(to, client, "")
		must(t, err)
		reason, out := b.run(b.packet(client, to, &layers.TCP{ACK: true}, 60))
		want := e.Verdict + " " + e.Reason
		if e.Reason == "" { // the packet is to no VIP
			if strings.Contains(reason, "lb") {
				t.Fatalf("packet %d, %s: %s", n, reason, strings.Join(e.lines(time.Now()), "\n"))
			}
			seen["none"]++
			continue
		}
		seen[want]++
		if e.Flow != nil && !e.Flow.Counts {
			seen[e.Flow.Why]++
		}
		fail := func(what string) {
			t.Helper()
			t.Fatalf("packet %d was counted as %s: %s\n%s\n%x", n, reason, what, strings.Join(e.lines(time.Now()), "\n"), out)
		}
		if reason != want {
			fail("wrong reason")
		}
		if e.Verdict != "fwd" {
			continue
		}
		got := decode(t, out)
		if got.mac != e.Backend.NextHop.MAC {
			fail("wrong next hop")
		}
		if e.Outer != nil && (got.source != e.Outer.Source || got.destination != e.Outer.To || got.sourcePort != e.Outer.SourcePort ||
			got.port != e.Outer.Port || len(out) != 14+e.Outer.Bytes+len(b.packet(client, to, &layers.TCP{ACK: true}, 60))-14) {
			fail("wrong outer header")
		}
		if e.Outer == nil && (got.destination != to.Addr.String() || e.Backend.Encap != lb.EncapL2) {
			fail("unexpected outer header")
		}
	}
	for _, want := range []string{"fwd lb-flow", "fwd lb-new", "pass lb-empty", "drop lb-next-hop", "none",
		"its backend has gone", "its backend is down, and flows move on failure"} {
		if seen[want] == 0 {
			t.Errorf("never seen: %s; %v", want, seen)
		}
	}
}

// disturb changes a backend or a ring in the data plane, but not in the stored state.
func (b *bed) disturb(rng *rand.Rand) {
	b.t.Helper()
	v := b.view.state.VIPs[rng.IntN(len(b.view.state.VIPs))]
	if len(v.Backends) == 0 {
		return
	}
	id := v.Backends[rng.IntN(len(v.Backends))].ID
	backend, err := b.view.plane.Backend(id.Number())
	must(b.t, err)
	switch rng.IntN(6) {
	case 0:
		backend.Down = !backend.Down
	case 1:
		backend.Used = !backend.Used
	case 2:
		backend.Hop.Port = 0
	case 3: // another backend has its number
		backend.ID = lbplane.NewBackendID(id.Number(), backend.ID.Generation()%4095+1)
	default:
		b.restore(v, id)
		return
	}
	must(b.t, b.view.plane.SetBackend(backend))
	ring, err := b.view.plane.Ring(v.Number)
	must(b.t, err)
	if ring != nil { // turned, as after an edit that is not finished
		at := rng.IntN(len(ring))
		ring = append(ring[at:], ring[:at]...)
		must(b.t, b.view.plane.SetRing(v.Number, ring))
	}
	key := v.Service.Key()
	all, err := b.view.plane.VIPs()
	must(b.t, err)
	known := all[key]
	known.Empty = rng.IntN(8) == 0 || ring == nil
	must(b.t, b.view.plane.SetVIP(key, known))
}

// restore makes a backend what the stored state says, up and with a next hop.
func (b *bed) restore(v lb.VIP, id lbplane.BackendID) {
	b.t.Helper()
	backend, err := b.view.plane.Backend(id.Number())
	must(b.t, err)
	out, err := net.InterfaceByName("out0")
	must(b.t, err)
	backend.ID, backend.Used, backend.Down, backend.VIP, backend.Hop.Port = id, true, false, v.Number, out.Index
	must(b.t, b.view.plane.SetBackend(backend))
}

// TestExplainFits sends packets of the largest size that is said to fit, and one byte longer.
func TestExplainFits(t *testing.T) {
	for _, encap := range []string{"ipip", "gue"} {
		for _, addr := range []string{"10.0.0.11", "fd00::11"} {
			t.Run(encap+" "+addr, func(t *testing.T) {
				b := newBed(t, lbplane.Options{RingSize: 17, Flows: 100}, vip(t, "192.0.2.1:80/tcp", nil, fmt.Sprintf("%s %s 1", addr, encap)))
				to, client := service(t, "192.0.2.1:80/tcp"), netip.MustParseAddrPort("203.0.113.7:1234")
				e, err := b.view.explain(to, client, "")
				must(t, err)
				if reason, _ := b.run(b.packet(client, to, &layers.TCP{ACK: true}, e.Fits-40)); reason != "fwd lb-new" {
					t.Errorf("%d bytes: %s", e.Fits, reason)
				}
				if reason, _ := b.run(b.packet(client, to, &layers.TCP{ACK: true}, e.Fits-39)); !strings.HasSuffix(reason, "too-big") {
					t.Errorf("%d bytes: %s", e.Fits+1, reason)
				}
			})
		}
	}
}

// TestExplainExpired waits until a flow has expired.
func TestExplainExpired(t *testing.T) {
	b := newBed(t, lbplane.Options{RingSize: 17, Flows: 100, IdleNew: lbplane.Tick},
		vip(t, "192.0.2.1:80/tcp", nil, "10.0.0.11 ipip 1"))
	to, client := service(t, "192.0.2.1:80/tcp"), netip.MustParseAddrPort("203.0.113.7:1234")
	b.run(b.packet(client, to, &layers.TCP{SYN: true}, 0))
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		e, err := b.view.explain(to, client, "")
		must(t, err)
		if e.Flow != nil && e.Flow.Why == stateTakesOff {
			if e.By != byRing || e.Reason != reasonNew {
				t.Errorf("got %+v", e)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal("the flow does not expire")
		}
	}
	if reason, _ := b.run(b.packet(client, to, &layers.TCP{ACK: true}, 0)); reason != "fwd lb-new" {
		t.Errorf("the packet was counted as %s", reason)
	}
}

func TestExplainOutput(t *testing.T) {
	b := newBed(t, lbplane.Options{RingSize: 17, Flows: 100},
		vip(t, "192.0.2.1/tcp", nil, "10.0.0.12 gue 3"), vip(t, "192.0.2.9:53/udp", func(v *lb.VIP) { v.ServerID = 2 }, "10.0.0.17 ipip 0"))
	client := netip.MustParseAddrPort("203.0.113.7:1234")
	b.run(b.packet(client, service(t, "192.0.2.1:80/tcp"), &layers.TCP{SYN: true}, 0))
	b.run(b.packet(client, service(t, "192.0.2.1:80/tcp"), &layers.TCP{ACK: true}, 0))
	var out bytes.Buffer
	must(t, Explain(ExplainOptions{Service: service(t, "192.0.2.1:80/tcp"), Client: client}, &out))
	for _, want := range []string{
		"203.0.113.7:1234 > 192.0.2.1:80/tcp: to 10.0.0.12, by the flow table\n", "\n  VIP         192.0.2.1/tcp (all ports)  hash flow  on failure keep\n",
		"\n  flow table  10.0.0.12  open  idle ", "\n  ring        position ", " of 17: 10.0.0.12\n",
		"\n  backend     10.0.0.12  weight 3  100.0% of the ring  not checked\n", "\n  packets     gue  from 10.200.", "  to 10.0.0.12 port 6080  28 bytes longer\n",
		"\n  next hop    out0 02:00:00:00:00:12  MTU 1500: packets of up to 1472 bytes fit\n", "\n  counted as  fwd lb-flow\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	must(t, Explain(ExplainOptions{On: "edge", Service: service(t, "192.0.2.9:53/udp"), Client: client, JSON: true}, &out))
	var got map[string]any
	must(t, json.Unmarshal(out.Bytes(), &got))
	if got["verdict"] != "pass" || got["reason"] != "lb-empty" || got["by"] != nil || got["quic_server_id"] != 2.0 || got["flow"] != nil {
		t.Errorf("got %s", out.String())
	}
	for want, o := range map[string]ExplainOptions{
		"has no port: say which one":   {Service: service(t, "192.0.2.1/tcp"), Client: client},
		"give addresses of one family": {Service: service(t, "[2001:db8::1]:80/tcp"), Client: client},
	} {
		if err := Explain(o, &out); !usage.Is(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
	if err := Explain(ExplainOptions{On: "nobody", Service: service(t, "192.0.2.1:80/tcp"), Client: client}, &out); err == nil ||
		!strings.Contains(err.Error(), "no data plane nobody") {
		t.Errorf("error is %v", err)
	}
}
