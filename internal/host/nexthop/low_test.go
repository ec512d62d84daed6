// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// loopbackAt returns the n-th of many addresses whose lookup needs no neighbor.
func loopbackAt(n int) netip.Addr { return netip.AddrFrom4([4]byte{127, 1, byte(n >> 8), byte(n)}) }

// hold stops the resolver until release is called.
func (w *wire) hold() (release func()) {
	held, free := make(chan struct{}), make(chan struct{})
	w.resolver.do(func() { close(held); <-free })
	<-held
	return func() { close(free) }
}

// TestLinksBeforeHosts tracks thousands of hosts of low priority, and then a link. The link must be reported first.
func TestLinksBeforeHosts(t *testing.T) {
	w := newWire(t, Options{})
	release := w.hold()
	const hosts = 5000
	var reported, before atomic.Int64
	for n := range hosts {
		w.resolver.TrackLow(loopbackAt(n), netip.Addr{}, func(NextHop) { reported.Add(1) })
	}
	found := make(chan struct{})
	w.resolver.Track(here, netip.Addr{}, func(NextHop) { before.Store(reported.Load()); close(found) })
	release()
	select {
	case <-found:
	case <-time.After(patience):
		t.Fatal("the link was not reported")
	}
	// The resolver may look up a batch of hosts before it learns of the link.
	if n := before.Load(); n > lowBatch {
		t.Errorf("%d of %d hosts came before the link, want %d at most", n, hosts, lowBatch)
	}
	for end := time.Now().Add(patience); reported.Load() < hosts; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d hosts looked up", reported.Load(), hosts)
		}
	}
}

// TestFoundWhileNotificationsFlood keeps the queue of notifications full. The resolver must resolve an address all the same.
func TestFoundWhileNotificationsFlood(t *testing.T) {
	w := newWire(t, Options{})
	// A batch repeats one notification, because handling a message takes longer than sending it to the resolver.
	msg := neighborMessage(t, w.link(w.own, "cv0").Attrs().Index, netip.MustParseAddr("10.9.0.77"))
	batch := make([]syscall.NetlinkMessage, 5000)
	for i := range batch {
		batch[i] = msg
	}
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case w.resolver.messages <- message{batch: batch}:
			case <-stop:
				return
			}
		}
	}()
	defer func() { close(stop); <-done }()
	for len(w.resolver.messages) < cap(w.resolver.messages) {
		time.Sleep(time.Millisecond)
	}
	w.track(there, here)
	w.expect(w.via("cv0", "cv0p"))
}

// neighborMessage returns the notification of an entry that the kernel is resolving.
func neighborMessage(t *testing.T, index int, addr netip.Addr) syscall.NetlinkMessage {
	t.Helper()
	// struct ndmsg and NDA_DST, see rtnetlink(7)
	data := make([]byte, 12, 20)
	data[0] = unix.AF_INET
	data[4] = byte(index)
	data[8] = unix.NUD_INCOMPLETE
	data = append(data, 8, 0, unix.NDA_DST, 0)
	data = append(data, addr.AsSlice()...)
	n, err := netlink.NeighDeserialize(data)
	check(t, err)
	if n.LinkIndex != index || !n.IP.Equal(net.IP(addr.AsSlice())) {
		t.Fatalf("the notification is read as %+v", n)
	}
	return syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: unix.RTM_NEWNEIGH}, Data: data}
}

// entry returns the state of a neighbor of cv0, -1 if there is none.
func (w *wire) entry(addr netip.Addr) int {
	w.t.Helper()
	entries, err := w.own.NeighList(w.link(w.own, "cv0").Attrs().Index, netlink.FAMILY_ALL)
	check(w.t, err)
	for _, e := range entries {
		if e.IP.Equal(net.IP(addr.AsSlice())) {
			return e.State
		}
	}
	return -1
}

// awaitEntry waits until a neighbor of cv0 has an entry, or none.
func (w *wire) awaitEntry(addr netip.Addr, want bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); (w.entry(addr) >= 0) != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("neighbor %s: state %d, want an entry %v", addr, w.entry(addr), want)
		}
	}
}

// TestUnansweredLeavesTheTable checks that addresses of low priority that do not exist cannot fill the kernel's table.
func TestUnansweredLeavesTheTable(t *testing.T) {
	for _, nobody := range []string{"10.9.0.99", "fd09::99"} {
		t.Run(nobody, func(t *testing.T) {
			w := newWire(t, Options{})
			addr := netip.MustParseAddr(nobody)
			low := w.resolver.TrackLow(addr, netip.Addr{}, func(NextHop) {})
			w.awaitEntry(addr, true)
			high := w.track(addr, netip.Addr{})
			low.Stop()
			w.settle()
			w.awaitEntry(addr, true) // another target still follows it
			high.Stop()
			w.settle()
			w.awaitEntry(addr, true) // that target was not of low priority
			low = w.resolver.TrackLow(addr, netip.Addr{}, func(NextHop) {})
			w.settle()
			low.Stop()
			w.awaitEntry(addr, false)
		})
	}
}

// settle waits until the resolver has run all commands and looked up the routes that they concern.
func (w *wire) settle() {
	done := make(chan struct{})
	for range 2 { // routes are looked up after commands
		done = make(chan struct{})
		w.resolver.do(func() { close(done) })
		<-done
	}
}

func TestAnsweredStaysInTheTable(t *testing.T) {
	w := newWire(t, Options{})
	low := w.resolver.TrackLow(there, here, func(n NextHop) { w.findings <- n })
	w.expect(w.via("cv0", "cv0p"))
	low.Stop()
	w.settle()
	if state := w.entry(there); state < 0 {
		t.Error("a neighbor that has answered was taken out of the table")
	}
}

// TestKernelOption checks that addresses to which only the kernel can send differ from those that do not resolve, and who
// receives the packets.
func TestKernelOption(t *testing.T) {
	w := newWire(t, Options{Kernel: true})
	lo := w.link(w.own, "lo")
	check(t, w.own.LinkSetUp(lo))
	kernel := NextHop{Kernel: true}
	by := func(own string, mac [6]byte, gateway bool) Via {
		return Via{IfIndex: w.link(w.own, own).Attrs().Index, MAC: mac, Gateway: gateway}
	}
	there, behind := w.via("cv0", "cv0p"), w.via("cv0", "cv0p")
	there.Via, behind.Via = by("cv0", there.DstMAC, false), by("cv0", there.DstMAC, true)
	_, dst, _ := net.ParseCIDR("192.0.2.0/24")
	check(t, w.own.RouteAdd(&netlink.Route{Dst: dst, Gw: net.IP{10, 9, 0, 2}}))
	for _, c := range []struct {
		about, addr string
		want        NextHop
	}{
		{"own address", "10.9.0.1", kernel},
		{"loopback", "127.0.0.1", kernel},
		{"own address, IPv6", "fd09::1", kernel},
		{"neighbor", "10.9.0.2", there},
		{"behind a gateway", "192.0.2.7", behind},
		{"no route", "203.0.113.1", NextHop{}},
		{"no such neighbor", "10.9.0.99", NextHop{}},
	} {
		t.Log(c.about)
		target := w.track(netip.MustParseAddr(c.addr), netip.Addr{})
		w.expect(c.want)
		target.Stop()
		w.settle()
	}
	// Only the kernel can send to a neighbor on a device that takes no redirected frames.
	w.listen("cv1p", 0)
	w.track(netip.MustParseAddr("10.9.1.2"), netip.Addr{})
	far := w.via("cv1", "cv1p")
	far.Via = by("cv1", far.DstMAC, false)
	kernel.Via = far.Via
	w.expect(kernel)
	w.listen("cv1p", 1)
	w.expect(far)
	w.listen("cv1p", 0)
	w.expect(kernel)
	// So it is on a device without neighbors.
	tun := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tun0"}, Mode: netlink.TUNTAP_MODE_TUN, NonPersist: true, Queues: 1}
	check(t, w.own.LinkAdd(tun))
	for _, file := range tun.Fds { // the device has a carrier while they are open
		t.Cleanup(func() { file.Close() })
	}
	w.address(w.own, "tun0", "10.9.2.1/24")
	w.track(netip.MustParseAddr("10.9.2.7"), netip.Addr{})
	kernel.Via = by("tun0", [6]byte{}, false)
	w.expect(kernel)
	w.track(netip.MustParseAddr("10.9.1.99"), netip.Addr{})
	w.expect(NextHop{})
}

// TestAskedForByAnother tracks neighbors that the kernel is resolving already, because the slow path has sent a packet.
func TestAskedForByAnother(t *testing.T) {
	w := newWire(t, Options{})
	release := w.hold()
	conn, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: there.AsSlice(), Port: 9})
	check(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("x"))
	check(t, err)
	w.resolver.TrackLow(there, here, func(n NextHop) { w.findings <- n })
	release()
	w.expect(w.via("cv0", "cv0p"))
	// Nobody answers for this address.
	nobody := netip.MustParseAddr("10.9.0.98")
	conn, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: nobody.AsSlice(), Port: 9})
	check(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("x"))
	check(t, err)
	w.resolver.TrackLow(nobody, here, func(n NextHop) { w.findings <- n })
	w.expect(NextHop{})
}
