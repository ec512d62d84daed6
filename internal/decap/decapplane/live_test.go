// SPDX-License-Identifier: Apache-2.0

package decapplane

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/testbed"
)

// live is a backend in this network namespace and a client in another one. The client encapsulates what it sends to the VIPs, as
// a load balancer would. Answers go directly to the client.
type live struct {
	client *testbed.Namespace
	// kind is the present kind of encapsulation. sent counts the packets that were encapsulated.
	kind atomic.Pointer[tunnelled]
	sent atomic.Uint64
}

// decapTunMTU is the length of the longest outer headers: IPv6, UDP and GUE.
const decapTunMTU = 40 + 8 + 4

func newLive(t *testing.T, mtu int) *live {
	t.Helper()
	testbed.InNamespace(t)
	d := &live{client: testbed.NewNamespace(t)}
	testbed.AddVeth(t, "srv", "cli")
	testbed.SetMAC(t, &net.Interface{Name: "srv", HardwareAddr: decapMAC})
	d.client.Take(t, "cli")
	setMTU := func(name string) error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(l, mtu)
	}
	if err := errors.Join(setMTU("srv"), testbed.PrepareEnd("srv", "10.0.0.11/24", "fd00::11/64"), testbed.AddToLo(decapVIP[4], decapVIP[6])); err != nil {
		t.Fatal(err)
	}
	testbed.Sysctl(t, "ipv4/conf/all/rp_filter", "0")
	var tun *os.File
	var out int
	d.client.Must(t, func() (err error) {
		if err := errors.Join(setMTU("cli"), testbed.PrepareEnd("cli", "10.0.0.1/24", "fd00::1/64")); err != nil {
			return err
		}
		for _, name := range []string{"all", "cli"} {
			if err := testbed.WriteSysctl("ipv4/conf/"+name+"/rp_filter", "0"); err != nil {
				return err
			}
		}
		if tun, err = decapTun(mtu - decapTunMTU); err != nil {
			return err
		}
		out, err = packetSocket("cli")
		return err
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.encapsulate(tun, out)
	}()
	t.Cleanup(func() {
		tun.Close()
		<-done
		unix.Close(out)
	})
	return d
}

// decapTun makes a TUN device with routes to the VIPs. The test reads from it what is to be encapsulated.
func decapTun(mtu int) (*os.File, error) {
	tun := &netlink.Tuntap{
		LinkAttrs: netlink.LinkAttrs{Name: "vips", MTU: mtu}, Mode: netlink.TUNTAP_MODE_TUN,
		Flags: netlink.TUNTAP_NO_PI, NonPersist: true, Queues: 1,
	}
	if err := netlink.LinkAdd(tun); err != nil {
		return nil, fmt.Errorf("making a TUN device: %w", err)
	}
	// The file has to be non-blocking for Close to end a Read.
	if err := unix.SetNonblock(int(tun.Fds[0].Fd()), true); err != nil {
		return nil, err
	}
	fd, err := unix.Dup(int(tun.Fds[0].Fd()))
	tun.Fds[0].Close()
	if err != nil {
		return nil, err
	}
	l, err := netlink.LinkByName("vips")
	if err != nil {
		return nil, err
	}
	err = errors.Join(testbed.WriteSysctl("ipv6/conf/vips/disable_ipv6", "0"), netlink.LinkSetMTU(l, mtu), netlink.LinkSetUp(l))
	for version, vip := range decapVIP {
		src := map[int]string{4: "10.0.0.1", 6: "fd00::1"}[version]
		dst := &net.IPNet{IP: vip.AsSlice(), Mask: net.CIDRMask(vip.BitLen(), vip.BitLen())}
		err = errors.Join(err, netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, Src: net.ParseIP(src)}))
	}
	return os.NewFile(uintptr(fd), "tun"), err
}

// packetSocket opens a socket that sends frames through a device of this namespace.
func packetSocket(name string) (int, error) {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	return fd, unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: dev.Index})
}

// encapsulate encapsulates the packets to the VIPs and sends them, until tun is closed.
func (d *live) encapsulate(tun io.Reader, out int) {
	b := make([]byte, 1<<16)
	for {
		n, err := tun.Read(b)
		if err != nil {
			return
		}
		s := d.kind.Load()
		to := netip.Addr{}
		switch {
		case s == nil:
			continue
		case b[0]>>4 == 4 && s.inner == 4:
			to, _ = netip.AddrFromSlice(b[16:20])
		case b[0]>>4 == 6 && s.inner == 6:
			to, _ = netip.AddrFromSlice(b[24:40])
		}
		if to != decapVIP[s.inner] { // router solicitations and the like
			continue
		}
		if _, err := unix.Write(out, s.around(b[:n])); err == nil {
			d.sent.Add(1)
		}
	}
}

// decapsulated returns how many packets the backend has decapsulated.
func decapsulated(t *testing.T) (n uint64) {
	t.Helper()
	counts := packetsOf(endsHere(t)["srv"])
	return counts["ipip"] + counts["gue"]
}

// settle waits until as many packets were decapsulated as were sent.
func (d *live) settle(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for decapsulated(t) != d.sent.Load() {
		if time.Now().After(deadline) {
			t.Fatalf("%d packets decapsulated of %d that were sent: %v", decapsulated(t), d.sent.Load(), endsHere(t)["srv"].Reasons)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// echoUDP starts a server that echoes UDP packets.
func echoUDP(t *testing.T, at netip.AddrPort) {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = c.WriteToUDPAddrPort(b[:n], from)
		}
	}()
}

// askUDP sends packets of some lengths to an echo server, from the calling thread's namespace.
func askUDP(to netip.AddrPort, longest int) error {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return err
	}
	defer c.Close()
	for _, n := range []int{0, 1, 100, longest} {
		if err := echoed(c, n); err != nil {
			return fmt.Errorf("UDP packet of %d bytes: %w", n, err)
		}
	}
	return nil
}

// echoed sends a packet of n bytes until it comes back. Packets may be lost on a busy machine, and before neighbors are known.
func echoed(c net.Conn, n int) error {
	b := make([]byte, 1<<16)
	var last error
	for range 30 {
		if _, err := c.Write(make([]byte, n)); err != nil {
			return err
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		for last = nil; last == nil; {
			var got int
			if got, last = c.Read(b); last == nil && got == n {
				return nil
			}
		}
	}
	return fmt.Errorf("sent 30 times, and not once back: %w", last)
}

// TestDecapLive sends UDP and TCP from socket to socket through all kinds of encapsulation, with frames of one buffer and of
// several.
func TestDecapLive(t *testing.T) {
	for _, mtu := range []int{1500, 9000} {
		for _, generic := range []bool{false, true} {
			t.Run(fmt.Sprintf("mtu %d generic %v", mtu, generic), func(t *testing.T) { liveDecap(t, mtu, generic) })
		}
	}
}

func liveDecap(t *testing.T, mtu int, generic bool) {
	d := newLive(t, mtu)
	o := Options{
		GUEPort: DefaultGUEPort, Generic: generic, Local: []netip.Addr{decapBackend[4], decapBackend[6]},
		From: []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16"), netip.MustParsePrefix("fd00:200::/32")},
		VIPs: []netip.Addr{decapVIP[4], decapVIP[6]},
	}
	if err := Attach([]string{"srv"}, o); err != nil {
		t.Fatal(err)
	}
	for version := range decapVIP {
		at := netip.AddrPortFrom(decapVIP[version], 8080)
		testbed.StartWebServer(t, at)
		echoUDP(t, at)
	}
	for _, s := range decapKinds() {
		d.kind.Store(&s)
		to := netip.AddrPortFrom(decapVIP[s.inner], 8080)
		d.client.Must(t, func() error {
			if err := askUDP(to, mtu-decapTunMTU-48); err != nil {
				return fmt.Errorf("%v: %w", s, err)
			}
			if _, _, err := testbed.Exchange(to); err != nil {
				return fmt.Errorf("%v: %w", s, err)
			}
			return nil
		})
	}
	d.settle(t)
}

// TestDecapSwapUnderLoad changes the options under load. No packet is lost or counted twice.
func TestDecapSwapUnderLoad(t *testing.T) {
	d := newLive(t, 1500)
	o := defaults()
	if err := Attach([]string{"srv"}, o); err != nil {
		t.Fatal(err)
	}
	to := netip.AddrPortFrom(decapVIP[4], 8080)
	testbed.StartWebServer(t, to)
	d.kind.Store(&tunnelled{kind: "gue1", outer: 4, inner: 4})
	over := make(chan error, 1)
	var swaps atomic.Int32
	go func() {
		over <- d.client.Do(func() error {
			for n := 0; n < 3 || swaps.Load() < 2; n++ {
				if _, _, err := testbed.Exchange(to); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	for running := true; running; swaps.Add(1) {
		o.VIPs = []netip.Addr{decapVIP[4], decapVIP[6]}[:1+swaps.Load()%2]
		if err := Attach([]string{"srv"}, o); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-over:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		case <-time.After(50 * time.Millisecond):
		}
	}
	if n := swaps.Load(); n < 2 {
		t.Errorf("%d swaps: the transfers were over too soon", n)
	}
	d.settle(t)
}
