// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"context"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"culvert/internal/host/neigh"
	"culvert/internal/host/netdev"
)

// patience bounds every wait. A test that passes does not wait nearly as long.
const patience = 20 * time.Second

var (
	here  = netip.MustParseAddr("10.9.0.1")
	there = netip.MustParseAddr("10.9.0.2")
	here6 = netip.MustParseAddr("fd09::1")
	far6  = netip.MustParseAddr("fd09::2")
)

// wire is two veth pairs between the test's network namespace and that of its peer.
type wire struct {
	t *testing.T
	// own and peer are handles of the two namespaces.
	own, peer *netlink.Handle
	resolver  *Resolver
	findings  chan NextHop
	// listen turns GRO of a device of the peer on or off. While it is on, frames can be redirected to the
	// other end of the pair.
	listen func(name string, on uint32)
	// atPeer calls f in the peer's namespace.
	atPeer func(f func())
}

// newWire enters a fresh namespace and never leaves it. The thread ends with the test's goroutine, and
// both namespaces with the thread.
func newWire(t *testing.T, o Options) *wire {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root to make network namespaces: run the tests with sudo")
	}
	runtime.LockOSThread()
	peerNS, err := netns.New()
	check(t, err)
	t.Cleanup(func() { peerNS.Close() })
	ownNS, err := netns.New()
	check(t, err)
	t.Cleanup(func() { ownNS.Close() })
	w := &wire{t: t, findings: make(chan NextHop, 1000)}
	w.own, err = netlink.NewHandle(unix.NETLINK_ROUTE)
	check(t, err)
	t.Cleanup(w.own.Close)
	w.peer, err = netlink.NewHandleAt(peerNS, unix.NETLINK_ROUTE)
	check(t, err)
	t.Cleanup(w.peer.Close)
	for i, names := range [][2]string{{"cv0", "cv0p"}, {"cv1", "cv1p"}} {
		check(t, w.own.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: names[0], MTU: 1500 - 100*i},
			PeerName: names[1], PeerNamespace: netlink.NsFd(peerNS)}))
	}
	w.address(w.own, "cv0", "10.9.0.1/24", "fd09::1/64")
	w.address(w.peer, "cv0p", "10.9.0.2/24", "fd09::2/64")
	w.address(w.own, "cv1", "10.9.1.1/24")
	w.address(w.peer, "cv1p", "10.9.1.2/24")
	w.atPeer = func(f func()) {
		t.Helper()
		check(t, netns.Set(peerNS))
		f()
		check(t, netns.Set(ownNS))
	}
	w.listen = func(name string, on uint32) {
		t.Helper()
		w.atPeer(func() {
			_, err := netdev.Ethtool(name, unix.ETHTOOL_SGRO, on)
			check(t, err)
		})
	}
	w.listen("cv0p", 1)
	w.listen("cv1p", 1)
	ctx, stop := context.WithCancel(context.Background())
	if o.OnError == nil {
		o.OnError = func(err error) { t.Error(err) }
	}
	w.resolver, err = New(ctx, o)
	check(t, err)
	t.Cleanup(func() { stop(); w.resolver.Wait() })
	return w
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// address adds addresses to a device and sets it up.
func (w *wire) address(h *netlink.Handle, name string, prefixes ...string) {
	w.t.Helper()
	link := w.link(h, name)
	for _, p := range prefixes {
		addr, err := netlink.ParseAddr(p)
		check(w.t, err)
		addr.Flags = unix.IFA_F_NODAD
		check(w.t, h.AddrAdd(link, addr))
	}
	check(w.t, h.LinkSetUp(link))
}

func (w *wire) link(h *netlink.Handle, name string) netlink.Link {
	w.t.Helper()
	link, err := h.LinkByName(name)
	check(w.t, err)
	return link
}

func (w *wire) mac(h *netlink.Handle, name string) (mac [6]byte) {
	copy(mac[:], w.link(h, name).Attrs().HardwareAddr)
	return mac
}

func (w *wire) track(addr, from netip.Addr) *Target {
	return w.resolver.Track(addr, from, func(n NextHop) { w.findings <- n })
}

// expect waits for a next hop to be reported.
func (w *wire) expect(want NextHop) {
	w.t.Helper()
	deadline := time.After(patience)
	var last NextHop
	for {
		select {
		case last = <-w.findings:
			if last == want {
				return
			}
		case <-deadline:
			w.t.Fatalf("next hop %+v, want %+v", last, want)
		}
	}
}

// via is the next hop through one of the veth pairs. A kernel that does not say what drivers take redirects no frames of several
// buffers (TestFramesOfSeveralBuffers).
func (w *wire) via(own, peer string) NextHop {
	attrs := w.link(w.own, own).Attrs()
	return NextHop{IfIndex: attrs.Index, SrcMAC: w.mac(w.own, own), DstMAC: w.mac(w.peer, peer), MTU: uint16(attrs.MTU),
		LinearOnly: w.resolver.xdp == nil}
}

func TestOnLink(t *testing.T) {
	w := newWire(t, Options{})
	w.track(there, here)
	w.expect(w.via("cv0", "cv0p"))
}

func TestOnLinkV6(t *testing.T) {
	w := newWire(t, Options{})
	w.track(far6, here6)
	w.expect(w.via("cv0", "cv0p"))
}

func TestAnySource(t *testing.T) {
	w := newWire(t, Options{})
	w.track(there, netip.Addr{})
	w.expect(w.via("cv0", "cv0p"))
}

func TestGatewayAndRouteMTU(t *testing.T) {
	w := newWire(t, Options{})
	_, dst, _ := net.ParseCIDR("192.0.2.0/24")
	check(t, w.own.RouteAdd(&netlink.Route{Dst: dst, Gw: there.AsSlice(), MTU: 1280}))
	w.track(netip.MustParseAddr("192.0.2.7"), here)
	want := w.via("cv0", "cv0p")
	want.MTU = 1280
	w.expect(want)
}

func TestIPv4ViaIPv6Gateway(t *testing.T) {
	w := newWire(t, Options{})
	_, dst, _ := net.ParseCIDR("192.0.2.0/24")
	check(t, w.own.RouteAdd(&netlink.Route{Dst: dst, LinkIndex: w.link(w.own, "cv0").Attrs().Index,
		Via: &netlink.Via{AddrFamily: netlink.FAMILY_V6, Addr: far6.AsSlice()}}))
	w.track(netip.MustParseAddr("192.0.2.7"), here)
	w.expect(w.via("cv0", "cv0p"))
}

func TestPeerMACChange(t *testing.T) {
	w := newWire(t, Options{})
	w.track(there, here)
	w.expect(w.via("cv0", "cv0p"))
	peer := w.link(w.peer, "cv0p")
	check(t, w.peer.LinkSetHardwareAddr(peer, net.HardwareAddr{2, 0, 0, 0, 0, 9}))
	// A gratuitous ARP would announce the change. Deleting the entry has the same effect.
	w.forget(there)
	w.expect(w.via("cv0", "cv0p"))
}

func TestOwnMACAndMTUChange(t *testing.T) {
	w := newWire(t, Options{})
	w.track(there, here)
	w.expect(w.via("cv0", "cv0p"))
	own := w.link(w.own, "cv0")
	check(t, w.own.LinkSetHardwareAddr(own, net.HardwareAddr{2, 0, 0, 0, 0, 7}))
	w.expect(w.via("cv0", "cv0p"))
	check(t, w.own.LinkSetMTU(own, 1400))
	w.expect(w.via("cv0", "cv0p"))
}

// forget deletes a neighbor entry of cv0.
func (w *wire) forget(addr netip.Addr) {
	w.t.Helper()
	check(w.t, w.own.NeighDel(&netlink.Neigh{LinkIndex: w.link(w.own, "cv0").Attrs().Index, IP: addr.AsSlice()}))
}

func TestNeighborDeleted(t *testing.T) {
	w := newWire(t, Options{})
	w.track(there, here)
	w.expect(w.via("cv0", "cv0p"))
	w.forget(there)
	w.expect(NextHop{})
	w.expect(w.via("cv0", "cv0p"))
}

func TestNeighborGone(t *testing.T) {
	w := newWire(t, Options{})
	w.track(netip.MustParseAddr("10.9.0.99"), here)
	// Nobody answers, so the kernel gives the entry up.
	w.expect(NextHop{})
}

func TestRouteChange(t *testing.T) {
	w := newWire(t, Options{})
	_, dst, _ := net.ParseCIDR("192.0.2.0/24")
	other := netip.MustParseAddr("10.9.1.2")
	w.track(netip.MustParseAddr("192.0.2.7"), netip.Addr{})
	w.expect(NextHop{})
	check(t, w.own.RouteAdd(&netlink.Route{Dst: dst, Gw: there.AsSlice()}))
	w.expect(w.via("cv0", "cv0p"))
	check(t, w.own.RouteReplace(&netlink.Route{Dst: dst, Gw: other.AsSlice()}))
	w.expect(w.via("cv1", "cv1p"))
	_, host, _ := net.ParseCIDR("192.0.2.7/32")
	check(t, w.own.RouteAdd(&netlink.Route{Dst: host, Type: unix.RTN_BLACKHOLE}))
	w.expect(NextHop{})
	check(t, w.own.RouteDel(&netlink.Route{Dst: host, Type: unix.RTN_BLACKHOLE}))
	w.expect(w.via("cv1", "cv1p"))
}

func TestLinkDownRenamedRemoved(t *testing.T) {
	w := newWire(t, Options{})
	w.track(there, here)
	want := w.via("cv0", "cv0p")
	w.expect(want)
	own := w.link(w.own, "cv0")
	check(t, w.own.LinkSetDown(own))
	w.expect(NextHop{})
	check(t, w.own.LinkSetName(own, "cvx"))
	check(t, w.own.LinkSetUp(own))
	w.expect(want)
	check(t, w.own.LinkDel(own))
	w.expect(NextHop{})
}

func TestPeerWithoutCarrier(t *testing.T) {
	w := newWire(t, Options{})
	w.track(there, here)
	w.expect(w.via("cv0", "cv0p"))
	peer := w.link(w.peer, "cv0p")
	check(t, w.peer.LinkSetDown(peer))
	w.expect(NextHop{})
	check(t, w.peer.LinkSetUp(peer))
	w.expect(w.via("cv0", "cv0p"))
}

func TestNeverResolved(t *testing.T) {
	for _, addr := range []string{"10.9.0.1", "127.0.0.1", "10.9.0.255", "224.0.0.1", "203.0.113.1", "fd09::1", "ff02::1", "::"} {
		t.Run(addr, func(t *testing.T) {
			w := newWire(t, Options{})
			w.track(netip.MustParseAddr(addr), netip.Addr{})
			w.expect(NextHop{})
		})
	}
}

// TestLostNotifications blocks the resolver until the kernel has dropped notifications, among them that
// of the change to find.
func TestLostNotifications(t *testing.T) {
	w := newWire(t, Options{ReceiveBuffer: 1})
	w.track(there, here)
	w.expect(w.via("cv0", "cv0p"))
	blocked, unblock := make(chan struct{}), make(chan struct{})
	w.resolver.do(func() { close(blocked); <-unblock })
	<-blocked
	for i := range 400 {
		dst := &net.IPNet{IP: net.IPv4(198, 51, byte(i>>8), byte(i)), Mask: net.CIDRMask(32, 32)}
		check(t, w.own.RouteAdd(&netlink.Route{Dst: dst, Gw: there.AsSlice()}))
	}
	check(t, w.own.LinkSetHardwareAddr(w.link(w.own, "cv0"), net.HardwareAddr{2, 0, 0, 0, 0, 5}))
	before := w.resolver.resyncs.Load()
	close(unblock)
	w.expect(w.via("cv0", "cv0p"))
	if w.resolver.resyncs.Load() == before {
		t.Error("no notification was lost, so the test has shown nothing")
	}
}

// TestStaleIsConfirmed makes the entry stale. The resolver must make the kernel confirm it at once, and not
// only when it would do so anyway.
func TestStaleIsConfirmed(t *testing.T) {
	w := newWire(t, Options{})
	w.track(there, here)
	want := w.via("cv0", "cv0p")
	w.expect(want)
	index := want.IfIndex
	check(t, w.own.NeighSet(&netlink.Neigh{LinkIndex: index, IP: there.AsSlice(), State: unix.NUD_STALE,
		HardwareAddr: want.DstMAC[:]}))
	deadline := time.Now().Add(neigh.ConfirmEvery * 2 / 3)
	for {
		neighs, err := w.own.NeighList(index, netlink.FAMILY_V4)
		check(t, err)
		if len(neighs) == 1 && neighs[0].State&(unix.NUD_DELAY|unix.NUD_PROBE|unix.NUD_REACHABLE) != 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("neighbor entries %+v, want one being confirmed", neighs)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestPermanentIsLeftAlone checks that a permanent entry stays permanent.
func TestPermanentIsLeftAlone(t *testing.T) {
	w := newWire(t, Options{})
	index := w.link(w.own, "cv0").Attrs().Index
	mac := [6]byte{2, 0, 0, 0, 0, 3}
	check(t, w.own.NeighSet(&netlink.Neigh{LinkIndex: index, IP: there.AsSlice(), State: unix.NUD_PERMANENT,
		HardwareAddr: mac[:]}))
	target := w.track(there, here)
	want := w.via("cv0", "cv0p")
	want.DstMAC = mac
	w.expect(want)
	target.Stop()
	w.track(there, here)
	w.expect(want)
	neighs, err := w.own.NeighList(index, netlink.FAMILY_V4)
	check(t, err)
	if len(neighs) != 1 || neighs[0].State != unix.NUD_PERMANENT {
		t.Errorf("neighbor entries %+v, want one permanent", neighs)
	}
}

func TestStop(t *testing.T) {
	w := newWire(t, Options{})
	first := w.track(there, here)
	w.expect(w.via("cv0", "cv0p"))
	first.Stop()
	done := make(chan [3]int)
	w.resolver.do(func() {
		done <- [3]int{len(w.resolver.targets), len(w.resolver.uses), len(w.resolver.dirty)}
	})
	if left := <-done; left != [3]int{} {
		t.Errorf("after Stop %v targets, neighbors and dirty targets are left", left)
	}
}
