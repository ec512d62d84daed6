// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"culvert/internal/lb/health"
	"culvert/internal/testbed"
)

// probePatience is the time after which a test fails.
const probePatience = 30 * time.Second

// TestProbeLive runs checks of all types over all encapsulations. Checksums are completed by the socket, by the egress device,
// or by nobody, as is usual between veths.
func TestProbeLive(t *testing.T) {
	if !inside(t) {
		return
	}
	b := newProbeBed(t)
	targets := b.liveTargets()
	for _, tt := range []struct {
		route, backend uint32 // checksum offload of the devices
		withoutTCX     bool
	}{
		{route: 0, backend: 0},
		{route: 1, backend: 0},
		{route: 0, backend: 1},
		{route: 1, backend: 1},
		{route: 1, backend: 1, withoutTCX: true},
	} {
		if tt.withoutTCX {
			up := testbed.Device(t, "up0").Index
			b.must(b.probes.attached[up].Close())
			var err error
			b.probes.attached[up], err = attachProbeFilter(b.probes.netlink, b.probes.prog, up)
			b.must(err)
		}
		offload(t, "up0", tt.route)
		offload(t, "b1", tt.backend)
		// One round, at once.
		var round []health.Target
		for _, one := range targets {
			one.Check.Fall = 100
			one.Check.Timeout = probePatience
			if one.Check.Type == health.UDP { // a lost datagram is not repeated before the next check
				one.Check.Interval, one.Check.Timeout = time.Second, time.Second
			}
			round = append(round, one)
		}
		reports, stop := b.start(round)
		up := make(map[uint32]bool)
		for deadline := time.After(probePatience); len(up) < len(targets); {
			select {
			case r := <-reports:
				udp := targets[r.id].Check.Type == health.UDP
				if udp && r.result.State != health.Up {
					continue // a lost datagram: the next probe tries again
				}
				if !udp && r.result.Failures > 0 || r.result.State != health.Up {
					t.Fatalf("offload %+v: check %d: %+v", tt, r.id, r.result)
				}
				up[r.id] = true
			case <-deadline:
				t.Fatalf("offload %+v: %d of %d answer", tt, len(up), len(targets))
			}
		}
		stop()
	}
}

// liveTargets returns targets of each type of check, for VIPs of both families and backends with each kind of outer header. Their
// IDs are their indexes.
func (b *probeBed) liveTargets() (targets []health.Target) {
	b.t.Helper()
	number := uint32(0)
	for inner, vip := range probeVIPs {
		for outer := range probeVIPs {
			for _, encap := range []Encap{L2, IPIP, GUE} {
				mark := b.backend(number, 1, outer, encap)
				number++
				for _, c := range []health.Check{
					{Type: health.TCP, Port: probeHTTPPort},
					{Type: health.HTTP, Port: probeHTTPPort, Path: "/health"},
					{Type: health.UDP, Port: probeUDPPort, Send: "ping", Expect: "pong"},
				} {
					c.Interval, c.Timeout = probePatience, probePatience
					id := uint32(len(targets))
					targets = append(targets, health.Target{ID: id, Addr: netip.AddrPortFrom(vip, 1), Mark: mark, Check: c})
					b.t.Logf("target %d: IPv%d over IPv%d, encapsulation %d, %s", id, inner, outer, encap, c.Type)
				}
			}
		}
	}
	return targets
}

// TestProbeFailures breaks one backend in many ways, and looks at the results for it and for the other one.
func TestProbeFailures(t *testing.T) {
	if !inside(t) {
		return
	}
	b := newProbeBed(t)
	one, two := b.backend(1, 1, 4, IPIP), b.backend(2, 2, 6, GUE)
	vip := netip.AddrPortFrom(probeVIPs[4], probeHTTPPort)
	quick := health.Check{Type: health.HTTP, Interval: 300 * time.Millisecond, Timeout: 200 * time.Millisecond}
	patient := health.Check{Type: health.HTTP, Interval: probePatience, Timeout: probePatience, Fall: 60}
	ask := health.Check{Type: health.UDP, Port: probeUDPPort, Send: "ping", Expect: "pong", Interval: 300 * time.Millisecond, Timeout: 200 * time.Millisecond}
	const web, udp, other = 1, 2, 3
	reports, _ := b.start([]health.Target{
		{ID: web, Addr: vip, Mark: one, Check: quick},
		{ID: udp, Addr: vip, Mark: one, Check: ask},
		{ID: other, Addr: vip, Mark: two, Check: patient},
	})
	states := make(map[uint32]health.Result)
	// until waits for the state of a target, and for the reason given if it is down.
	until := func(what string, id uint32, state health.State, text string) {
		t.Helper()
		for deadline := time.After(probePatience); ; {
			r := states[id]
			if r.State == state && (text == "" || r.Text == text) {
				return
			}
			select {
			case r := <-reports:
				states[r.id] = r.result
			case <-deadline:
				t.Fatalf("%s: target %d is %v: %+v", what, id, r.State, r)
			}
		}
	}
	allUp := func() {
		t.Helper()
		until("at rest", web, health.Up, "")
		until("at rest", udp, health.Up, "")
	}
	k := b.backends[1]
	allUp()
	until("at rest", other, health.Up, "")

	k.status.Store(503)
	until("HTTP 503", web, health.Down, "HTTP status 503, not 200-399")
	k.status.Store(0)
	until("slow", web, health.Down, "connected, but no answer in 200ms")
	k.status.Store(200)
	k.udp.Store("nope")
	until("a wrong answer", udp, health.Down, `the answer begins with "nope", not with "pong"`)
	k.udp.Store("pong")
	allUp()

	k.kill()
	until("killed", web, health.Down, "connection refused")
	until("killed", udp, health.Down, "port unreachable")
	k.start(t)
	allUp()

	// The next hop is lost.
	backend, err := b.plane.Backend(1)
	b.must(err)
	lost := backend
	lost.Hop = Hop{}
	b.must(b.plane.SetBackend(lost))
	until("no next hop", web, health.Down, "no next hop of the backend is known")
	b.must(b.plane.SetBackend(backend))
	allUp()

	k.space.Must(t, func() error {
		l, err := netlink.LinkByName("b1p")
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(l)
	})
	until("link down", web, health.Down, "no answer in 200ms")
	until("link down", udp, health.Down, "no answer in 200ms")

	// If the VIP were an address of the load balancer itself, it would answer instead of the backends.
	lo, err := netlink.LinkByName("lo")
	b.must(err)
	b.must(netlink.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(probeVIPs[4].AsSlice())}))
	until("the VIP is here", web, health.Down, "the VIP 192.0.2.1 is an address of this host: remove it")
	if r := states[other]; r.State != health.Up {
		t.Errorf("the other backend is %+v", r)
	}
}
