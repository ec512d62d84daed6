// SPDX-License-Identifier: Apache-2.0

package scionplane_test

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// guardedSocket is a UDP socket at the internal address of scionbed.Config, which a0 has.
type guardedSocket struct {
	t     *testing.T
	fd    int
	guard *scionplane.SocketGuard
}

var guardedAt = netip.MustParseAddrPort("10.0.0.1:30042")

// newGuardedSocket makes a0 and b0 with their peers a1 and b1, and a socket that is bound to the device bound, if that is
// not empty. Prepare is called in the namespace before a0 gets its address.
func newGuardedSocket(t *testing.T, prepare func(), bound string) *guardedSocket {
	t.Helper()
	testbed.InNamespace(t)
	testbed.AddVeth(t, "a0", "a1")
	testbed.AddVeth(t, "b0", "b1")
	prepare()
	a0, err := netlink.LinkByName("a0")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr("10.0.0.1/24")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(a0, addr); err != nil {
		t.Fatal(err)
	}
	for _, dev := range []string{"all", "a0", "b0"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+dev+"/rp_filter", []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
	}
	s := &guardedSocket{t: t}
	if s.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(s.fd) })
	if bound != "" {
		if err := unix.BindToDevice(s.fd, bound); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Bind(s.fd, &unix.SockaddrInet4{Addr: guardedAt.Addr().As4(), Port: int(guardedAt.Port())}); err != nil {
		t.Fatal(err)
	}
	if s.guard, err = scionplane.NewSocketGuard(scionbed.Config(1, 2)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.guard.Close)
	return s
}

// inject sends a datagram in by a0 or b0.
func (s *guardedSocket) inject(iface string, payload []byte) {
	s.t.Helper()
	to, far := testbed.Device(s.t, iface+"0"), testbed.Device(s.t, iface+"1")
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.IPv4(10, 0, 0, 77), DstIP: guardedAt.Addr().AsSlice()}
	udp := &layers.UDP{SrcPort: 31000, DstPort: layers.UDPPort(guardedAt.Port())}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		s.t.Fatal(err)
	}
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: far.HardwareAddr, DstMAC: to.HardwareAddr, EthernetType: layers.EthernetTypeIPv4},
		ip, udp, gopacket.Payload(payload))
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer unix.Close(out)
	if err := unix.Sendto(out, buf.Bytes(), 0, &unix.SockaddrLinklayer{Ifindex: far.Index}); err != nil {
		s.t.Fatal(err)
	}
}

// received reads a datagram and returns its length, or -1 if there is none.
func (s *guardedSocket) received() int {
	s.t.Helper()
	n, _, err := unix.Recvfrom(s.fd, make([]byte, 2000), 0)
	if errors.Is(err, unix.EAGAIN) {
		return -1
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// expect waits until the last datagram received has the given length, -1 for none, and the filter has dropped as many as
// wanted.
func (s *guardedSocket) expect(step string, length int, want scionplane.SocketDrops) {
	s.t.Helper()
	var drops []scionplane.SocketDrops
	got := -1
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if n := s.received(); n >= 0 {
			got = n
		}
		var err error
		if drops, err = s.guard.Drops(); err != nil {
			s.t.Fatal(err)
		}
		if got == length && drops[0] == want {
			return
		}
	}
	s.t.Fatalf("%s: received %d bytes, dropped %+v; want %d, %+v", step, got, drops[0], length, want)
}

func (s *guardedSocket) rule(a scionplane.Accept) {
	s.t.Helper()
	if err := s.guard.SetLinkAccept(0, a); err != nil {
		s.t.Fatal(err)
	}
}

// fromService returns the beginning of a SCION packet from a service of an AS.
func fromService(ia uint64) []byte {
	b := make([]byte, 60)
	b[8], b[9] = 1, 4
	binary.BigEndian.PutUint64(b[20:], ia)
	return b
}

// TestSocketGuard checks that a socket accepts datagrams by its rule, and nothing that came before it had the filter.
func TestSocketGuard(t *testing.T) {
	s := newGuardedSocket(t, func() {}, "")
	a, b := testbed.Device(t, "a0").Index, testbed.Device(t, "b0").Index
	s.inject("a", make([]byte, 33))
	var before int
	for deadline := time.Now().Add(20 * time.Second); before == 0 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		var err error
		if before, err = unix.IoctlGetInt(s.fd, unix.TIOCINQ); err != nil {
			t.Fatal(err)
		}
	}
	if before != 33 {
		t.Fatalf("%d bytes wait in the socket without a filter", before)
	}
	if err := s.guard.Add(s.fd, 0); err != nil {
		t.Fatal(err)
	}
	s.expect("what came without a filter", -1, scionplane.SocketDrops{})
	s.inject("a", make([]byte, 40))
	s.expect("no rule yet", -1, scionplane.SocketDrops{Interface: 1})

	// Each datagram has another length, so that expect can tell it from the one before.
	onlyA, onlyB := scionplane.Accept{Devices: []int{a}}, scionplane.Accept{Devices: []int{b}}
	exceptB, any := scionplane.Accept{Except: true, Devices: []int{b}}, scionplane.Accept{Except: true}
	for _, c := range []struct {
		name    string
		rule    scionplane.Accept
		iface   string
		payload []byte
		length  int // of what the socket receives, -1 for nothing
		drops   scionplane.SocketDrops
	}{
		{"only a0, by b0", onlyA, "b", make([]byte, 41), -1, scionplane.SocketDrops{Interface: 2}},
		{"only a0, by a0", onlyA, "a", make([]byte, 42), 42, scionplane.SocketDrops{Interface: 2}},
		{"only b0, by a0", onlyB, "a", make([]byte, 43), -1, scionplane.SocketDrops{Interface: 3}},
		{"only b0, by b0", onlyB, "b", make([]byte, 44), 44, scionplane.SocketDrops{Interface: 3}},
		{"not b0, by b0", exceptB, "b", make([]byte, 45), -1, scionplane.SocketDrops{Interface: 4}},
		{"not b0, by a0", exceptB, "a", make([]byte, 46), 46, scionplane.SocketDrops{Interface: 4}},
		{"any, by b0, shorter than SCION's headers", any, "b", make([]byte, 5), 5, scionplane.SocketDrops{Interface: 4}},
		{"from a service of the AS", any, "a", fromService(uint64(scionbed.IA)), -1, scionplane.SocketDrops{Interface: 4, Service: 1}},
		{"from a service of another AS", any, "a", fromService(uint64(scionbed.IA) + 1), 60, scionplane.SocketDrops{Interface: 4, Service: 1}},
	} {
		s.rule(c.rule)
		s.inject(c.iface, c.payload)
		s.expect(c.name, c.length, c.drops)
	}
}

// TestSocketGuardTTL checks that BFD packets with a TTL below the minimum are dropped and other packets are not.
func TestSocketGuardTTL(t *testing.T) {
	s := newGuardedSocket(t, func() {}, "")
	bfd := make([]byte, 60)
	bfd[4] = 203
	for _, c := range []struct {
		name    string
		minTTL  uint8 // the packets have 64
		length  int   // of what the socket receives, -1 for nothing
		dropped uint64
	}{
		{"no minimum", 0, 60, 0},
		{"the minimum", 64, 60, 0},
		{"one below the minimum", 65, -1, 1},
	} {
		config := scionbed.Config(1, 2)
		config.BFDMinTTL = c.minTTL
		guard, err := scionplane.NewSocketGuard(config)
		if err != nil {
			t.Fatal(err)
		}
		defer guard.Close()
		s.guard = guard
		if err := guard.Add(s.fd, 0); err != nil {
			t.Fatal(err)
		}
		s.rule(scionplane.Accept{Except: true})
		s.inject("a", bfd)
		s.expect("BFD, "+c.name, c.length, scionplane.SocketDrops{BFD: c.dropped})
		s.inject("a", make([]byte, 50))
		s.expect("not BFD, "+c.name, 50, scionplane.SocketDrops{BFD: c.dropped})
	}
}
