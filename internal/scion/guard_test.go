// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/slayers"
	"github.com/scionproto/scion/pkg/slayers/path/empty"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// scionHeader returns a SCION header with the given path type and source. Its path is empty, which the filter does not
// look at.
func scionHeader(t *testing.T, pathType uint8, src addr.IA, host string) []byte {
	t.Helper()
	h := &slayers.SCION{
		NextHdr: slayers.L4UDP, PathType: empty.PathType, Path: empty.Path{},
		SrcIA: src, DstIA: addr.MustParseIA("1-ff00:0:9"),
	}
	check(t, h.SetSrcAddr(addr.MustParseHost(host)))
	check(t, h.SetDstAddr(addr.MustParseHost("192.0.2.9")))
	buf := gopacket.NewSerializeBuffer()
	check(t, h.SerializeTo(buf, gopacket.SerializeOptions{FixLengths: true}))
	b := append([]byte{}, buf.Bytes()...)
	b[8] = pathType
	return b
}

// guardCase is a packet, and whether the filter of a router in AS 1-ff00:0:1 passes it.
type guardCase struct {
	name   string
	packet []byte
	pass   bool
}

func guardCases(t *testing.T) []guardCase {
	const pathSCION, pathOneHop, pathEPIC = 1, 2, 3
	local, other := addr.MustParseIA("1-ff00:0:1"), addr.MustParseIA("1-ff00:0:2")
	return []guardCase{
		{"SCION path, service of the AS", scionHeader(t, pathSCION, local, "CS"), false},
		{"EPIC path, service of the AS", scionHeader(t, pathEPIC, local, "CS"), false},
		{"SCION path, host of the AS", scionHeader(t, pathSCION, local, "192.0.2.1"), true},
		{"SCION path, IPv6 host of the AS", scionHeader(t, pathSCION, local, "2001:db8::1"), true},
		{"SCION path, service of another AS", scionHeader(t, pathSCION, other, "CS"), true},
		{"one-hop path, service of the AS", scionHeader(t, pathOneHop, local, "CS"), true},
		// As long as a STUN request, and otherwise as the first case.
		{"too short for SCION", scionHeader(t, pathSCION, local, "CS")[:20], true},
	}
}

func TestGuardProgram(t *testing.T) {
	vm, err := bpf.NewVM(guardProgram(addr.MustParseIA("1-ff00:0:1")))
	check(t, err)
	for _, c := range guardCases(t) {
		n, err := vm.Run(append(make([]byte, 8), c.packet...))
		check(t, err)
		if (n > 0) != c.pass {
			t.Errorf("%s: kept %d bytes, want kept %v", c.name, n, c.pass)
		}
	}
}

// TestGuardSockets checks that the filter is on the socket with the given address.
func TestGuardSockets(t *testing.T) {
	guarded, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	check(t, err)
	defer guarded.Close()
	at := guarded.LocalAddr().(*net.UDPAddr).AddrPort()
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	check(t, guardSockets(addr.MustParseIA("1-ff00:0:1"), 0, []netip.AddrPort{at}))
	out, err := net.DialUDP("udp4", nil, guarded.LocalAddr().(*net.UDPAddr))
	check(t, err)
	defer out.Close()
	var want []string
	for _, c := range guardCases(t) {
		_, err := out.Write(c.packet)
		check(t, err)
		if c.pass {
			want = append(want, string(c.packet))
		}
	}
	// Loopback delivers in order, and the last packet passes: once it has arrived, the filter has decided on all.
	check(t, guarded.SetReadDeadline(time.Now().Add(20*time.Second)))
	buf := make([]byte, 2000)
	for _, w := range want {
		n, err := guarded.Read(buf)
		check(t, err)
		if string(buf[:n]) != w {
			t.Fatalf("got a packet of %d bytes, want one of %d", n, len(w))
		}
	}
	missing := netip.MustParseAddrPort("127.0.0.1:1")
	if guardSockets(addr.MustParseIA("1-ff00:0:1"), 0, []netip.AddrPort{missing}) == nil {
		t.Error("a socket that does not exist is said to be guarded")
	}
}

// TestGuardBFD checks that the filter drops BFD packets with a TTL below the minimum and no others.
func TestGuardBFD(t *testing.T) {
	const minTTL = 64
	const bfd, udp, scmp = 203, 17, 202 // next headers
	for _, host := range []string{"127.0.0.1", "::1"} {
		guarded, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(host)})
		check(t, err)
		defer guarded.Close()
		at := guarded.LocalAddr().(*net.UDPAddr).AddrPort()
		check(t, guardSockets(addr.MustParseIA("1-ff00:0:1"), minTTL, []netip.AddrPort{netip.AddrPortFrom(at.Addr().Unmap(), at.Port())}))
		out, err := net.DialUDP("udp", nil, guarded.LocalAddr().(*net.UDPAddr))
		check(t, err)
		defer out.Close()
		// packet ends with its TTL, so that packets of different cases differ.
		packet := func(next, ttl byte) []byte {
			b := scionHeader(t, 2, addr.MustParseIA("1-ff00:0:2"), "192.0.2.1")
			b[4] = next
			return append(b, ttl)
		}
		var want []string
		for _, c := range []struct {
			name   string
			packet []byte
			ttl    int
			pass   bool
		}{
			{"BFD, one below the minimum", packet(bfd, 63), 63, false},
			{"BFD, lowest TTL", packet(bfd, 1), 1, false},
			{"BFD, the minimum", packet(bfd, 64), 64, true},
			{"BFD, highest TTL", packet(bfd, 255), 255, true},
			{"UDP", packet(udp, 63), 63, true},
			{"too short for SCION", []byte("short"), 1, true},
			{"SCMP", packet(scmp, 1), 1, true},
		} {
			raw, err := out.SyscallConn()
			check(t, err)
			check(t, raw.Control(func(fd uintptr) {
				level, name := unix.IPPROTO_IP, unix.IP_TTL
				if host == "::1" {
					level, name = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
				}
				err = unix.SetsockoptInt(int(fd), level, name, c.ttl)
			}))
			check(t, err)
			if _, err = out.Write(c.packet); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if c.pass {
				want = append(want, string(c.packet))
			}
		}
		check(t, guarded.SetReadDeadline(time.Now().Add(20*time.Second)))
		buf := make([]byte, 2000)
		for _, w := range want {
			n, err := guarded.Read(buf)
			check(t, err)
			if string(buf[:n]) != w {
				t.Fatalf("%s: got %x, want %x", host, buf[:n], w)
			}
		}
	}
}
