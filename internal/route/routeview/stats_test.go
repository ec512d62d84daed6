// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/route/lpm"
	"culvert/internal/route/routeplane"
)

func TestStats(t *testing.T) {
	b := newBed(t, routeplane.Options{Blocks4: 64, Blocks6: 1024})
	b.mirror()
	var out bytes.Buffer
	must(t, WriteStats("", true, false, &out))
	var s Stats
	must(t, json.Unmarshal(out.Bytes(), &s))
	// The machine may have other routers.
	i := slices.IndexFunc(s.Routers, func(r RouterStats) bool { return r.Here })
	if i < 0 {
		t.Fatalf("got %s", out.Bytes())
	}
	r := s.Routers[i]
	feed := b.status.Load()
	if r.Router != "culvert" || !r.Here || r.MemoryBytes != routeplane.Memory(b.inst) || r.IPv4.By != Mirror || r.IPv6.By != Mirror {
		t.Errorf("got %s", out.Bytes())
	}
	if r.IPv4.BlocksUsed == 0 || r.IPv4.BlocksUsed != feed.IPv4.BlocksUsed || r.IPv4.BlocksTotal != 64 || r.IPv4.Lost != 0 ||
		r.IPv6.BlocksUsed != feed.IPv6.BlocksUsed || r.IPv6.BlocksTotal != 1024 {
		t.Errorf("got %s, the feed has %+v", out.Bytes(), feed)
	}
	if r.Neighbors != feed.Neighbors || r.Hops["forward"] == 0 || r.Hops["blackhole"] != 1 || r.Hops["connected"] == 0 {
		t.Errorf("neighbors %d, hops %v; the feed has %+v", r.Neighbors, r.Hops, feed)
	}
	var west *Device
	for n := range r.Devices {
		if r.Devices[n].Interface == "west" {
			west = &r.Devices[n]
		}
	}
	if west == nil || !west.Forward4 || !west.Forward6 || !west.Redirects || !west.Xmit || west.RPFilter != 0 || west.IfIndex != b.index("west") {
		t.Errorf("west is %+v", west)
	}
	out.Reset()
	must(t, WriteStats("culvert", false, false, &out))
	for _, want := range []string{
		"router culvert  netns ", "\n  IPv4 by the mirror\n    prefixes ", " of 64\n", "\n  device west  ", "  forwarding send_redirects\n",
		"\n  neighbors 4\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if err := WriteStats("no", false, false, &out); err == nil || !strings.Contains(err.Error(), "no data plane no") {
		t.Error(err)
	}

	// Without forwarding of IPv4 on any interface, all of it is left to the kernel.
	for n, name := range []string{"west", "east"} {
		b.setDev(name, func(d *routeplane.Dev) { d.Forward4 = false })
		s, err := Describe(b.inst)
		must(t, err)
		if want := []string{Mirror, Kernel}[n]; s.IPv4.By != want || s.IPv6.By != Mirror {
			t.Errorf("off on %d interfaces: %+v, want IPv4 by %s", n+1, s, want)
		}
	}
	if s, err := Describe(b.inst); err != nil || !strings.HasPrefix(s.IPv4.String(), "left to the kernel: no attached interface forwards IPv4: ") {
		t.Errorf("%+v, %v", s, err)
	}
	sysctl(t, "ipv4/ip_forward", "0")
	if s, err := Describe(b.inst); err != nil || s.IPv4.String() != "left to the kernel: net.ipv4.ip_forward is 0" {
		t.Errorf("%+v, %v", s, err)
	}
}

// Every prefix that is the longest for some address is counted, in whatever order prefixes are added.
func TestUsage(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, f := range []struct {
		name            string
		rootBits, width int
		first           byte // of all addresses
	}{{"IPv4", 24, 32, 10}, {"IPv6", 16, 128, 32}} {
		t.Run(f.name, func(t *testing.T) {
			root, blocks := make([]uint32, 1<<f.rootBits), make([]uint32, 16384*lpm.BlockSize)
			w := lpm.New(root, blocks, f.width)
			prefixes := make(map[netip.Prefix]bool)
			for len(prefixes) < 300 {
				b := make([]byte, f.width/8)
				for n := range b {
					b[n] = byte(rng.UintN(256))
				}
				b[0] = f.first
				addr, _ := netip.AddrFromSlice(b)
				p, _ := addr.Prefix(20 + rng.IntN(f.width-19))
				prefixes[p] = true
				w.Insert(p, routeplane.HopFirst+uint32(rng.UintN(3)))
			}
			// Prefixes that longer ones cover completely are not counted. There are none among these 300.
			u := newTable(root, blocks, f.rootBits/8, f.width).content()
			if u.prefixes != len(prefixes) || u.blocks != w.BlocksUsed() || u.lost != 0 || len(u.numbers) != 3 || u.total != 16384 {
				t.Errorf("counted %d prefixes, %d of %d blocks, %d lost, %d next hops; there are %d and %d",
					u.prefixes, u.blocks, u.total, u.lost, len(u.numbers), len(prefixes), w.BlocksUsed())
			}
		})
	}
	// Two adjacent networks have the same length and next hop. For the last one there is no room.
	root := make([]uint32, 1<<24)
	w := lpm.New(root, nil, 32)
	for _, p := range []string{"10.0.0.0/16", "10.1.0.0/16", "10.2.0.0/24", "10.3.0.0/25"} {
		w.Insert(netip.MustParsePrefix(p), routeplane.HopFirst)
	}
	if u := newTable(root, nil, 3, 32).content(); u.prefixes != 3 || u.lost != 1 || u.blocks != 0 {
		t.Errorf("counted %+v", u)
	}
}

func TestCondition(t *testing.T) {
	now := monotonic()
	for _, tt := range []struct {
		o      routeplane.Options
		kernel bool
		until  time.Duration
		want   string
	}{
		{routeplane.Options{}, false, now + time.Hour, "by the mirror"},
		{routeplane.Options{}, true, now + time.Hour, "left to the kernel"},
		{routeplane.Options{}, false, 0, "asks the kernel"},
		{routeplane.Options{}, false, now - 90*time.Second, "asks the kernel (for 1m30s)"},
		{routeplane.Options{NoMirror: true}, false, 0, "asks the kernel"},
		{routeplane.Options{Trusting: true}, false, 0, "by the mirror"},
	} {
		if got := condition(tt.o, tt.kernel, tt.until).String(); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt, got, tt.want)
		}
	}
}
