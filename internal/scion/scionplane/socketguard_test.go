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

// guardedSocket is a UDP socket at the internal address of testConfig, which a0 has.
type guardedSocket struct {
	t     *testing.T
	fd    int
	guard *scionplane.SocketGuard
}

var guardedAt = netip.MustParseAddrPort("10.0.0.1:30042")

// newGuardedSocket makes a0 and b0, their far ends a1 and b1, and a socket that is bound to a device
// unless its name is empty.
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

// inject has a datagram come in by a0 or b0.
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

// received reads a datagram's length, or -1 if there is none.
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

// expect waits until a datagram of a length has been received, or until the filter has dropped as many as wanted.
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

// fromService is the beginning of a SCION packet from a service of the AS, whose number it is.
func fromService(ia uint64) []byte {
	b := make([]byte, 60)
	b[8], b[9] = 1, 4
	binary.BigEndian.PutUint64(b[20:], ia)
	return b
}

// A socket takes what its rule says, from the moment on that it has the filter.
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

	s.rule(scionplane.Accept{Devices: []int{a}})
	s.inject("b", make([]byte, 41))
	s.expect("only a0, by b0", -1, scionplane.SocketDrops{Interface: 2})
	s.inject("a", make([]byte, 42))
	s.expect("only a0, by a0", 42, scionplane.SocketDrops{Interface: 2})

	s.rule(scionplane.Accept{Devices: []int{b}})
	s.inject("a", make([]byte, 43))
	s.expect("only b0, by a0", -1, scionplane.SocketDrops{Interface: 3})
	s.inject("b", make([]byte, 44))
	s.expect("only b0, by b0", 44, scionplane.SocketDrops{Interface: 3})

	s.rule(scionplane.Accept{Except: true, Devices: []int{b}})
	s.inject("b", make([]byte, 45))
	s.expect("not b0, by b0", -1, scionplane.SocketDrops{Interface: 4})
	s.inject("a", make([]byte, 46))
	s.expect("not b0, by a0", 46, scionplane.SocketDrops{Interface: 4})

	s.rule(scionplane.Accept{Except: true})
	s.inject("b", make([]byte, 5)) // shorter than SCION's headers
	s.expect("any, by b0", 5, scionplane.SocketDrops{Interface: 4})
	s.inject("a", fromService(uint64(scionbed.IA)))
	s.expect("from a service", -1, scionplane.SocketDrops{Interface: 4, Service: 1})
	s.inject("a", fromService(uint64(scionbed.IA)+1))
	s.expect("from a service elsewhere", 60, scionplane.SocketDrops{Interface: 4, Service: 1})
}

// BFD with a TTL below the least is dropped, other packets are not.
func TestSocketGuardTTL(t *testing.T) {
	s := newGuardedSocket(t, func() {}, "")
	bfd := make([]byte, 60)
	bfd[4] = 203
	for _, c := range []struct {
		least   uint8
		taken   int
		dropped uint64
		name    string
	}{
		{0, 60, 0, "any TTL"}, {64, 60, 0, "TTL 64 is enough"}, {65, -1, 1, "TTL 64 is too low"},
	} {
		config := scionbed.Config(1, 2)
		config.BFDMinTTL = c.least
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
		s.expect("BFD, "+c.name, c.taken, scionplane.SocketDrops{BFD: c.dropped})
		s.inject("a", make([]byte, 50))
		s.expect("not BFD", 50, scionplane.SocketDrops{BFD: c.dropped})
	}
}
