// SPDX-License-Identifier: Apache-2.0

package route

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"culvert/internal/route/routeplane"
)

// expect waits until the mirror is current, and checks the action that it has for an address.
func (b *bed) expect(a string, want routeplane.Action) {
	b.t.Helper()
	b.barrier()
	if got := b.plane.ask(netip.MustParseAddr(a)); got.Action != want {
		b.t.Errorf("%s: %+v, want action %d", a, got, want)
	}
}

func always(netip.Addr) bool { return true }

// within lists addresses in the networks of the tests, in 10.0.0.0/8 and 2001:db8::/32.
func within() (list []netip.Addr) {
	for i := range 256 {
		list = append(list, netip.AddrFrom4([4]byte{10, byte(i), 1, 1}), netip.AddrFrom4([4]byte{10, 9, byte(i), 7}),
			netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, byte(i), 15: 1}))
	}
	return list
}

const someRoutes = `route add 10.1.0.0/16 via 10.9.0.2
	route add 10.2.0.0/16 via 10.9.1.2
	route add 10.2.1.0/24 via 10.9.0.3
	nexthop add id 1 via 10.9.0.4 dev cv0
	nexthop add id 2 via fd09:0::4 dev cv0
	route add 10.3.0.0/16 nhid 1
	route add 10.3.1.0/24 dev cv1
	route add 10.4.0.0/16 nexthop via 10.9.0.2 nexthop via 10.9.1.2
	route add 2001:db8:1::/48 via fd09:0::2
	route add 2001:db8:2::/48 via fd09:1::2
	route add 2001:db8:3::/48 nhid 2
	route add 2001:db8::/32 via fd09:1::3`

func TestDeviceDown(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	b.ip(someRoutes)
	b.start(Options{})
	b.compare(within(), b.askable4and6())
	for _, state := range []string{"down", "up"} {
		b.ip("link set cv0 " + state)
		b.barrier()
		b.compare(within(), always)
		b.clear()
		b.compare(within(), b.askable4and6())
	}
	// The kernel has removed the routes by cv0.
	b.expect("10.1.1.1", routeplane.None)
	b.expect("10.2.1.1", routeplane.Forward)
	b.expect("10.3.1.1", routeplane.Connected)
}

func (b *bed) askable4and6() func(netip.Addr) bool {
	four, six := b.askable(false), b.askable(true)
	return func(a netip.Addr) bool { return a.Is4() && four(a) || a.Is6() && six(a) }
}

func TestDownAndUpAtOnce(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	b.ip(someRoutes)
	b.start(Options{})
	// When Run reads the notifications, the device is as before, but its routes are gone.
	b.ip("link set cv0 down\nlink set cv0 up\nnexthop add id 1 via 10.9.0.4 dev cv0\nnexthop add id 2 via 10.9.0.5 dev cv0")
	b.barrier()
	b.compare(within(), always)
	b.clear()
	b.compare(within(), b.askable4and6())
}

func TestCarrier(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	b.ip(someRoutes)
	b.start(Options{})
	peer, err := b.peer.LinkByName("cv0p")
	check(t, err)
	check(t, b.peer.LinkSetDown(peer))
	b.waitReady("cv0", false)
	b.barrier()
	if got := b.plane.ask(netip.MustParseAddr("10.1.1.1")); got.Action == routeplane.Forward {
		t.Errorf("packets are sent to a device without a carrier: %+v", got)
	}
	b.clear()
	b.compare(within(), always)
	check(t, b.peer.LinkSetUp(peer))
	b.waitReady("cv0", true)
	b.barrier()
	b.clear()
	b.compare(within(), b.askable4and6())
	b.expect("10.1.1.1", routeplane.Forward)
}

// Without a carrier the routes still exist, and a dump shows them. When the device then goes down, the kernel removes
// them without a notification. They do not return with the device.
func TestDownWithoutCarrier(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	b.ip(someRoutes)
	b.start(Options{})
	peer, err := b.peer.LinkByName("cv0p")
	check(t, err)
	check(t, b.peer.LinkSetDown(peer))
	b.waitReady("cv0", false)
	b.barrier()
	b.clear() // the tables have been read since
	b.ip("link set cv0 down")
	check(t, b.peer.LinkSetUp(peer))
	b.ip("link set cv0 up")
	b.waitReady("cv0", true)
	b.barrier()
	b.compare(within(), always)
	b.clear()
	b.compare(within(), b.askable4and6())
	b.expect("10.1.1.1", routeplane.None)
}

func (b *bed) waitReady(name string, want bool) {
	b.t.Helper()
	b.wait("the carrier", func() bool {
		link, err := b.own.LinkByName(name)
		check(b.t, err)
		return link.Attrs().RawFlags&readyFlags == readyFlags == want
	})
}

func TestDeviceRemoved(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	b.ip(someRoutes)
	b.start(Options{})
	gone := b.index("cv0")
	b.ip("link del cv0")
	b.barrier()
	b.compare(within(), always)
	b.clear()
	b.compare(within(), b.askable4and6())
	b.wait("the device to be taken out", func() bool {
		b.plane.mu.Lock()
		defer b.plane.mu.Unlock()
		_, ok := b.plane.devs[gone]
		return !ok
	})
}

func TestAddressRemoved(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	b.ip(`addr add 10.9.0.100/32 dev cv0
		route add 10.1.0.0/16 via 10.9.1.2
		route add 10.1.1.0/24 via 10.9.0.2 src 10.9.0.100
		route add 2001:db8:1::/48 via fd09:0::2`)
	b.start(Options{})
	b.compare(within(), never)
	before := b.plane.withdrawals()
	b.ip("addr del 10.9.0.100/32 dev cv0")
	b.barrier()
	b.compare(within(), never)
	if after := b.plane.withdrawals(); after[0] == before[0] || after[1] != before[1] {
		t.Errorf("taken out of use %v times before and %v after, want more for IPv4 only", before, after)
	}
	b.plane.mu.Lock()
	defer b.plane.mu.Unlock()
	if got, want := fmt.Sprint(b.plane.own), "[10.9.0.1 10.9.1.1 10.9.2.1 127.0.0.1]"; got != want {
		t.Errorf("own addresses %s, want %s", got, want)
	}
}

func (p *fakePlane) withdrawals() [2]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.withdrawn
}

func (p *fakePlane) policyNow() routeplane.Policy {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.policy
}

func TestRules(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	b.ip(someRoutes)
	b.start(Options{})
	if b.plane.policyNow().FullCheck4 {
		t.Error("a full check of sources without policy rules")
	}
	b.ip("rule add from 10.77.0.0/16 table 100")
	b.barrierOf(1) // by then it has been seen
	b.plane.mu.Lock()
	if b.plane.until[0] != 0 {
		t.Error("the mirror is current with a policy rule")
	}
	b.plane.mu.Unlock()
	b.wait("the reason", func() bool { return b.status.Load().IPv4.Reason == reasonRules })
	b.wait("the full check", func() bool { return b.plane.policyNow().FullCheck4 })
	b.ip("rule del from 10.77.0.0/16 table 100")
	b.barrier()
	b.compare(within(), b.askable4and6())
	_, err := runIP("rule add table 100 pref 100", "-6")
	check(t, err)
	b.wait("the rule", func() bool { return b.status.Load().IPv6.Reason == reasonRules })
	_, err = runIP("rule del table 100 pref 100", "-6")
	check(t, err)
	b.barrier()
}

func TestLocalPrefix(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	b.ip(`route add 10.60.1.0/24 via 10.9.0.2
		route add 2001:db8:60:1::/64 via fd09:0::2
		route add 2001:db8:61:1::/64 via fd09:0::2`)
	b.start(Options{})
	look := addrs("10.60.1.1", "10.60.2.1", "2001:db8:60:1::1", "2001:db8:60:2::1", "2001:db8:61:1::1")
	b.compare(look, never)
	b.expect("10.60.1.1", routeplane.Forward)
	b.ip(`route add local 10.60.0.0/16 dev lo table local
		route add local 2001:db8:60::/48 dev lo table local`)
	b.expect("10.60.1.1", routeplane.Ask)
	b.expect("10.60.2.1", routeplane.Local)
	b.expect("2001:db8:60:1::1", routeplane.Local)
	b.compare(look, func(a netip.Addr) bool { return a == look[0] })
	if !b.plane.policyNow().FullCheck4 {
		t.Error("no full check of sources with a local route of our own")
	}
	// This route is added after the local prefix around it.
	b.ip("route add 10.60.3.0/24 via 10.9.0.2\nroute add 2001:db8:60:3::/64 via fd09:0::2")
	b.expect("10.60.3.1", routeplane.Ask)
	b.expect("2001:db8:60:3::1", routeplane.Local)
	b.ip("route del local 10.60.0.0/16 dev lo table local\nroute del local 2001:db8:60::/48 dev lo table local")
	b.barrier()
	b.compare(append(look, addrs("10.60.3.1", "2001:db8:60:3::1")...), never)
}

func TestOverrun(t *testing.T) {
	b := newBed(t, newFakePlane(512, 8192))
	b.ip(someRoutes)
	b.start(Options{ReceiveBuffer: 4096})
	var batch strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&batch, "route add 10.%d.%d.0/24 via 10.9.1.%d\nroute add 2001:db8:0:%x::/64 via fd09:1::%d\n", 100+i/256, i%256, 2+i%8, i, 2+i%8)
	}
	before := b.plane.withdrawals()
	// Run cannot read while it waits for the plane.
	b.plane.mu.Lock()
	b.ip(batch.String())
	b.plane.mu.Unlock()
	b.barrier()
	b.compare(within(), b.askable4and6())
	for i := range 2000 {
		a := netip.AddrFrom4([4]byte{10, byte(100 + i/256), byte(i), 1})
		if got := b.plane.ask(a); got.Action != routeplane.Forward {
			t.Fatalf("%s: %+v", a, got)
		}
	}
	after, s := b.plane.withdrawals(), b.status.Load()
	if s.Overruns == 0 || s.Dumps < 2 || after[0] == before[0] || after[1] == before[1] {
		t.Errorf("taken out of use %v times before and %v after, %+v", before, after, s)
	}
	const begin, end = "notifications of the kernel were lost: packets ask the kernel until", "the tables of the kernel have been read again"
	b.wait("the log to say that the tables have been read again", func() bool { return strings.Contains(b.log.String(), end) })
	if text := b.log.String(); strings.Count(text, begin) != 1 || strings.Count(text, end) != 1 {
		t.Errorf("not one line for the beginning and one for the end:\n%s", text)
	}
}

// TestWithdrawnInTime removes routes, and checks that none is followed for more than 100 ms.
func TestWithdrawnInTime(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	b.start(Options{})
	a := netip.MustParseAddr("10.1.1.1")
	for i := range 30 {
		b.ip("route add 10.1.0.0/16 via 10.9.0.2")
		b.expect("10.1.1.1", routeplane.Forward)
		b.ip("route del 10.1.0.0/16")
		gone := monotonic()
		b.wait("the route to go", func() bool {
			b.plane.mu.Lock()
			until := b.plane.until[0]
			b.plane.mu.Unlock()
			// A program may look at the clock now and at the table later.
			now := monotonic()
			old := b.plane.ask(a).Action == routeplane.Forward
			if old && now < until && now > gone+100*time.Millisecond {
				t.Fatalf("round %d: the route is followed %v after its removal", i, now-gone)
			}
			return !old
		})
	}
}

func TestUnclear(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	b.ip(`route add 2001:db8:1::/48 nexthop via fd09:0::2 nexthop via fd09:1::2
		route add 2001:db8:2::/48 via fd09:0::2 metric 5 expires 600
		route add 10.1.0.0/16 via 10.9.0.2
		route append 10.1.0.0/16 via 10.9.1.2
		route add 10.2.0.0/16 via 10.9.0.2 tos 0x10
		route add 10.3.0.0/16 dev cv0 mtu 1400
		route add 10.4.0.0/16 via 10.9.0.2 mtu 1400
		route add 10.5.0.0/16 via 10.9.1.2 table default
		route add throw 10.6.0.0/16
		route add 2001:db8:5::/48 via fd09:0::2 metric 5
		route add 2001:db8:5::/48 from 2001:db8:99::/64 via fd09:1::2 metric 9`)
	b.start(Options{})
	for why, a := range map[string]string{
		"several next hops":          "2001:db8:1::1",
		"expires":                    "2001:db8:2::1",
		"several routes":             "10.1.1.1",
		"tos":                        "10.2.1.1",
		"MTU but no gateway":         "10.3.1.1",
		"table default":              "10.5.1.1",
		"throw":                      "10.6.1.1",
		"link-local":                 "fe80::1",
		"another route has a source": "2001:db8:5::1",
	} {
		t.Log(why)
		b.expect(a, routeplane.Ask)
	}
	if got := b.plane.ask(netip.MustParseAddr("10.4.1.1")); got.MTU != 1400 {
		t.Errorf("%+v, want MTU 1400", got)
	}
	b.ip("route del 2001:db8:5::/48 from 2001:db8:99::/64 metric 9")
	b.expect("2001:db8:5::1", routeplane.Forward)
	// The kernel reports which next hop is gone, and not which are left.
	b.ip("route del 2001:db8:1::/48 via fd09:0::2\nroute del 10.1.0.0/16 via 10.9.0.2")
	b.expect("10.1.1.1", routeplane.Forward)
	b.clear()
	b.compare(addrs("2001:db8:1::1", "10.1.1.1"), never)
	// The kernel replaces the first of several.
	b.ip(`route add 10.7.0.0/16 via 10.9.0.2
		route append 10.7.0.0/16 via 10.9.0.3
		route replace 10.7.0.0/16 via 10.9.0.4
		route del 10.7.0.0/16 via 10.9.0.3`)
	b.barrier()
	b.compare(addrs("10.7.1.1"), always) // it may ask until the next dump, which may have ended already
	b.ip("route del 10.7.0.0/16 via 10.9.0.4")
	b.barrier()
	b.compare(addrs("10.7.1.1"), always)
	b.clear()
	b.compare(addrs("10.7.1.1"), never)
	// A second next hop is added, and then replaces the first.
	b.ip("route append 2001:db8:1::/48 via fd09:0::3")
	b.barrier()
	b.compare(addrs("2001:db8:1::1"), always)
	b.ip("route replace 2001:db8:1::/48 via fd09:0::4")
	b.expect("2001:db8:1::1", routeplane.Forward)
	b.compare(addrs("2001:db8:1::1"), never)
}

func TestNexthopObject(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	b.ip(someRoutes)
	b.start(Options{})
	look := addrs("10.3.7.1", "2001:db8:3::1")
	b.compare(look, never)
	b.ip("nexthop replace id 1 via 10.9.1.5 dev cv1")
	_, err := runIP("nexthop replace id 2 blackhole", "-6")
	check(t, err)
	b.barrier()
	b.compare(look, never)
	// A next hop object that is added again does not bring its routes back.
	b.ip("nexthop del id 1\nnexthop del id 2\nnexthop add id 1 via 10.9.1.5 dev cv1")
	b.barrier()
	b.compare(look, always)
	b.clear()
	b.compare(look, never)
	b.ip("nexthop add id 7 via 10.9.0.2 dev cv0\nnexthop add id 8 group 1/7\nroute add 10.3.0.0/16 nhid 8")
	b.expect("10.3.7.1", routeplane.Ask)
}

func TestFewBlocks(t *testing.T) {
	b := newBed(t, newFakePlane(4, 8))
	b.ip(someRoutes)
	b.start(Options{})
	b.compare(within(), always)
	if s := b.status.Load(); s.IPv6.Lost == 0 {
		t.Errorf("nothing is lost: %+v", s)
	}
	logged := func() int { return strings.Count(b.log.String(), "larger than the mirror") }
	b.wait("the log to say so", func() bool { return logged() > 0 })
	b.ip("route add 2001:db8:77::/48 via fd09:0::2")
	b.barrier()
	if n := logged(); n > 2 {
		t.Errorf("logged %d times:\n%s", n, b.log)
	}
}

// TestUsedMemory starts on the mirror of an earlier process.
func TestUsedMemory(t *testing.T) {
	p := newFakePlane(256, 1024)
	for i := range p.root4 {
		p.root4[i], p.root6[i] = 8<<23|99, 8<<23|99
	}
	b := newBed(t, p)
	b.ip(someRoutes)
	b.start(Options{})
	b.compare(within(), b.askable4and6())
	b.stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until != [2]time.Duration{} {
		t.Errorf("the mirror stays in use until %v", p.until)
	}
	if s := b.status.Load(); s.IPv4.Current || s.IPv4.Reason != reasonNotRunning {
		t.Errorf("%+v after the end", s)
	}
}
