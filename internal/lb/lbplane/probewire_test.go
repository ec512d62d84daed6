// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/testbed"
)

// wireSocket returns a packet socket that receives the frames of a device.
func wireSocket(t *testing.T, dev *net.Interface) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	wait := unix.NsecToTimeval(int64(probePatience))
	for _, err := range []error{
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bpfobj.Wire16(unix.ETH_P_ALL), Ifindex: dev.Index}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return fd
}

// receive returns the next frame with its VLAN tag, which the kernel removes from the frame and reports separately (packet(7)).
func receive(t *testing.T, fd int) []byte {
	t.Helper()
	b, control := make([]byte, 2048), make([]byte, 128)
	n, cn, _, _, err := unix.Recvmsg(fd, b, control, 0)
	if err != nil {
		t.Fatalf("no frame has arrived: %v", err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:cn])
	if err != nil {
		t.Fatal(err)
	}
	frame := b[:n]
	for _, m := range messages {
		const valid = 1 << 4 // TP_STATUS_VLAN_VALID
		if m.Header.Type != unix.PACKET_AUXDATA || bpfobj.Native.Uint32(m.Data)&valid == 0 {
			continue
		}
		// struct tpacket_auxdata has the tag at 16 and its kind at 18.
		tag := binary.BigEndian.AppendUint16(nil, bpfobj.Native.Uint16(m.Data[18:]))
		frame = slices.Insert(frame, 12, binary.BigEndian.AppendUint16(tag, bpfobj.Native.Uint16(m.Data[16:]))...)
	}
	return frame
}

// sendMarked sends a UDP packet with a mark (SO_MARK), from the network namespace of the thread.
func sendMarked(to netip.AddrPort, mark uint32, payload []byte) error {
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark)); err != nil {
		return err
	}
	return unix.Sendto(fd, payload, 0, sa)
}

// udpChecksumValid reports whether the UDP checksum of an IP packet is right.
func udpChecksumValid(ip []byte) bool {
	addrs, udp := ip[8:40], ip[40:]
	if ip[0]>>4 == 4 {
		addrs, udp = ip[12:20], ip[20:]
	}
	return testbed.OnesSum(addrs, []byte{0, protoUDP}, binary.BigEndian.AppendUint16(nil, uint16(len(udp))), udp) == 0xffff
}

// TestProbeWire compares probes on the wire with the same packets from a client: with VLAN tags, and with checksums that the
// sockets leave to the device.
func TestProbeWire(t *testing.T) {
	b := newBed(t, Options{})
	mustAttachProbes(t, b.inst)
	b.must(testbed.WriteSysctl("ipv6/conf/lb0/disable_ipv6", "0"))
	addAddress(t, "lb0", "203.0.113.7/24")
	addAddress(t, "lb0", "2001:db8:1::7/64")
	for _, gateway := range []string{"203.0.113.254", "2001:db8:1::254"} {
		b.must(netlink.NeighSet(&netlink.Neigh{LinkIndex: b.in.Index, IP: net.ParseIP(gateway), HardwareAddr: clientMAC, State: netlink.NUD_PERMANENT}))
		b.must(netlink.RouteAdd(&netlink.Route{LinkIndex: b.in.Index, Gw: net.ParseIP(gateway)}))
	}
	offload(t, "lb0", 1)  // sockets leave checksums to the device of the route
	offload(t, "out0", 0) // but probes leave by a device that cannot compute them
	wire := wireSocket(t, testbed.Device(t, "out0p"))
	payload := bytes.Repeat([]byte("check"), 20)
	for number, c := range probeWireCases() {
		what := fmt.Sprintf("%+v", c)
		to := netip.MustParseAddrPort(c.vip)
		backend := b.backend(uint32(number), 0, c.backend, func(backend *Backend) { backend.Encap, backend.Hop.VLAN = c.encap, c.vlan })
		b.vip(0, c.vip, protoUDP, []Backend{backend})
		b.must(sendMarked(to, ProbeMark(backend.ID), payload))
		got := receive(t, wire)
		head, etherType := 20, []byte{0x08, 0x00}
		if to.Addr().Is6() {
			head, etherType = 40, []byte{0x86, 0xdd}
		}
		inner := got[len(got)-head-8-len(payload):]
		if !udpChecksumValid(inner) {
			t.Errorf("%s: the checksum of the inner packet is wrong: %x", what, got)
		}
		// The same packet from a client.
		frame := slices.Concat(b.in.HardwareAddr, clientMAC, etherType, inner)
		_, want, err := b.inst.TestRun(frame, "lb0")
		b.must(err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: a probe leaves as\n%x\na client's packet as\n%x", what, got, want)
		}
	}
}

// probeWireCase is a VIP and its backend.
type probeWireCase struct {
	vip, backend string
	encap        Encap
	vlan         uint16
}

// probeWireCases returns all combinations of families, encapsulation and VLAN.
func probeWireCases() (all []probeWireCase) {
	for _, vip := range []string{"192.0.2.1:80", "[2001:db8::1]:80"} {
		for _, backend := range []string{"10.0.0.11", "fd00::11"} {
			for _, encap := range []Encap{L2, IPIP, GUE} {
				for _, vlan := range []uint16{0, packetTagged | 5} {
					all = append(all, probeWireCase{vip, backend, encap, vlan})
				}
			}
		}
	}
	return all
}

// TestProbeMarkAlone wants packets with other marks, or to other addresses than VIPs, to leave by the routing table.
func TestProbeMarkAlone(t *testing.T) {
	b := newBed(t, Options{})
	probes := mustAttachProbes(t, b.inst)
	addAddress(t, "lb0", "203.0.113.7/24")
	b.must(netlink.NeighSet(&netlink.Neigh{LinkIndex: b.in.Index, IP: net.ParseIP("203.0.113.9"), HardwareAddr: clientMAC, State: netlink.NUD_PERMANENT}))
	backend := b.backend(1, 0, "10.0.0.11")
	wire := wireSocket(t, testbed.Device(t, "lb0p"))
	to := netip.MustParseAddrPort("203.0.113.9:80")
	for _, mark := range []uint32{0, 1, ProbeMark(backend.ID) ^ 1<<31, ProbeMark(backend.ID)} { // the address is that of no VIP
		b.must(sendMarked(to, mark, []byte("plain")))
		if got := receive(t, wire); !bytes.HasSuffix(got, []byte("plain")) || !bytes.Equal(got[:6], clientMAC) {
			t.Errorf("mark %#x: %x", mark, got)
		}
	}
	b.vip(0, to.String(), protoUDP, []Backend{backend})
	// A packet to a VIP with the mark of a backend that does not exist is dropped while probes are attached. Without them it leaves
	// by the routing table.
	b.must(sendMarked(to, ProbeMark(NewBackendID(50, 1)), []byte("lost")))
	b.must(probes.Close())
	b.must(sendMarked(to, ProbeMark(NewBackendID(50, 1)), []byte("found")))
	if got := receive(t, wire); !bytes.HasSuffix(got, []byte("found")) {
		t.Errorf("%x", got)
	}
}
