// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"net/netip"
	"strings"
	"testing"

	"culvert/internal/capture/trace"
	"culvert/internal/route/routeplane"
)

// TestTraceIsWhatHappens explains packets that decide takes for plain ones, and the program treats otherwise.
func TestTraceIsWhatHappens(t *testing.T) {
	b := newBed(t, routeplane.Options{Blocks4: 4096, Blocks6: 4096})
	b.mirror()
	e := NewExplainer()
	t.Cleanup(e.Close)
	if on, err := e.Follow(b.inst); err != nil || !on {
		t.Fatalf("the router is on: %t, %v", on, err)
	}
	p := predictor{bed: b}
	fixed := func(f []byte) []byte { // the checksum of the IPv4 header
		f[24], f[25] = 0, 0
		var s uint32
		for n := 14; n < 34; n += 2 {
			s += uint32(f[n])<<8 | uint32(f[n+1])
		}
		s = s>>16 + s&0xffff
		s = ^(s>>16 + s)
		f[24], f[25] = byte(s>>8), byte(s)
		return f
	}
	long := func(f []byte) []byte {
		f = append(f, make([]byte, 1600)...)
		n := len(f) - 14
		f[16], f[17] = byte(n>>8), byte(n)
		return fixed(f)
	}
	for _, tt := range []struct {
		name     string
		to, from string
		vlan     uint16
		change   func(f []byte) []byte
		want     string
	}{
		{"plain", "192.0.2.7", "10.1.0.2", 0, nil, "fwd route"},
		{"IPv6", "2001:db8:1::5", "fd01::2", 0, nil, "fwd route"},
		{"TTL 1", "192.0.2.7", "10.1.0.2", 0, func(f []byte) []byte { f[22] = 1; return fixed(f) }, "punt route-ttl"},
		{"TTL 1 to this host", "10.2.0.1", "10.1.0.2", 0, func(f []byte) []byte { f[22] = 1; return fixed(f) }, "pass route-local"},
		{"hop limit 1", "2001:db8:1::5", "fd01::2", 0, func(f []byte) []byte { f[21] = 1; return f }, "punt route-ttl"},
		{"longer than the MTU", "192.0.2.7", "10.1.0.2", 0, long, "punt route-mtu"},
		{"options", "192.0.2.7", "10.1.0.2", 0, func(f []byte) []byte { f[14] = 0x46; return f }, "punt route-options"},
		{"options, to this host", "10.2.0.1", "10.1.0.2", 0, func(f []byte) []byte { f[14] = 0x46; return f }, "pass route-local"},
		{"options, no route", "172.16.0.1", "10.1.0.2", 0, func(f []byte) []byte { f[14] = 0x46; return f }, "punt route-options"},
		{"a wrong checksum", "192.0.2.7", "10.1.0.2", 0, func(f []byte) []byte { f[25] ^= 1; return f }, "punt route-malformed"},
		{"hop-by-hop options", "2001:db8:1::5", "fd01::2", 0, func(f []byte) []byte { f[20] = 0; return f }, "punt route-options"},
		{"neighbor discovery", "2001:db8:1::5", "fd01::2", 0, func(f []byte) []byte { f[20], f[54] = 58, 135; return f }, "pass route-kernel"},
		{"echo", "2001:db8:1::5", "fd01::2", 0, func(f []byte) []byte { f[20], f[54] = 58, 128; return f }, "fwd route"},
		{"a VLAN without a device", "192.0.2.7", "10.1.0.2", 20, nil, "pass route-off"},
		{"no route", "172.16.0.1", "10.1.0.2", 0, nil, "punt route-none"},
		{"back where it came from", "10.60.0.1", "10.1.0.2", 0, nil, "pass route-redirect"},
		{"a blackhole", "198.51.100.1", "10.1.0.2", 0, nil, "drop route-blackhole"},
	} {
		f := frame(t, netip.MustParseAddr(tt.to), netip.MustParseAddr(tt.from), mac(t, "west"), tt.vlan)
		if tt.change != nil {
			f = tt.change(f)
		}
		got, _ := p.run(f, "west")
		for tries := 0; strings.Contains(got, ",") && tries < 10; tries++ { // the host sent packets of its own meanwhile
			got, _ = p.run(f, "west")
		}
		packet, err := trace.Parse(trace.Frame{Data: f, Length: len(f), Ingress: b.index("west"), Name: "west"}, [6]byte(mac(t, "west")))
		must(t, err)
		s, err := e.Explain(packet)
		must(t, err)
		if got != tt.want || s.Words() != tt.want {
			t.Errorf("%s: %s, explained as %s (%s); want %s", tt.name, got, s.Words(), s.Text, tt.want)
		}
	}
}
