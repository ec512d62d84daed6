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

// scionHeader makes a packet with the given path type and source; the path itself does not matter
// to the filter.
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

func guardCases(t *testing.T) (cases []struct {
	name string
	b    []byte
	pass bool
}) {
	local, other := addr.MustParseIA("1-ff00:0:1"), addr.MustParseIA("1-ff00:0:2")
	add := func(name string, b []byte, pass bool) {
		cases = append(cases, struct {
			name string
			b    []byte
			pass bool
		}{name, b, pass})
	}
	add("SCION path, service of ours", scionHeader(t, 1, local, "CS"), false)
	add("EPIC path, service of ours", scionHeader(t, 3, local, "CS"), false)
	add("SCION path, host of ours", scionHeader(t, 1, local, "192.0.2.1"), true)
	add("SCION path, IPv6 host of ours", scionHeader(t, 1, local, "2001:db8::1"), true)
	add("SCION path, service elsewhere", scionHeader(t, 1, other, "CS"), true)
	add("one-hop path, service of ours", scionHeader(t, 2, local, "CS"), true)
	short := make([]byte, 20) // as short as a STUN request, and like the first case where it can be
	copy(short, scionHeader(t, 1, local, "CS"))
	add("too short for SCION", short, true)
	return cases
}

func TestGuardProgram(t *testing.T) {
	vm, err := bpf.NewVM(guardProgram(addr.MustParseIA("1-ff00:0:1")))
	check(t, err)
	for _, c := range guardCases(t) {
		n, err := vm.Run(append(make([]byte, 8), c.b...))
		check(t, err)
		if (n > 0) != c.pass {
			t.Errorf("%s: kept %d bytes, want kept %v", c.name, n, c.pass)
		}
	}
}

// The filter must be on the socket itself, found by its address.
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
		_, err := out.Write(c.b)
		check(t, err)
		if c.pass {
			want = append(want, string(c.b))
		}
	}
	// Loopback delivers in order and at once: the last packet passes, so all others are decided.
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

// With a least TTL the filter drops BFD packets that come from too far, and nothing else.
func TestGuardBFD(t *testing.T) {
	const least = 64
	for _, host := range []string{"127.0.0.1", "::1"} {
		guarded, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(host)})
		check(t, err)
		defer guarded.Close()
		at := guarded.LocalAddr().(*net.UDPAddr).AddrPort()
		check(t, guardSockets(addr.MustParseIA("1-ff00:0:1"), least, []netip.AddrPort{netip.AddrPortFrom(at.Addr().Unmap(), at.Port())}))
		out, err := net.DialUDP("udp", nil, guarded.LocalAddr().(*net.UDPAddr))
		check(t, err)
		defer out.Close()
		packet := func(next, ttl byte) []byte {
			b := scionHeader(t, 2, addr.MustParseIA("1-ff00:0:2"), "192.0.2.1")
			b[4] = next
			return append(b, ttl)
		}
		var want []string
		for _, c := range []struct {
			b    []byte
			ttl  int
			pass bool
		}{
			{packet(203, 63), 63, false}, {packet(203, 1), 1, false}, {packet(203, 64), 64, true}, {packet(203, 255), 255, true},
			{packet(17, 63), 63, true}, {[]byte("short"), 1, true}, {packet(202, 1), 1, true},
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
			_, err = out.Write(c.b)
			check(t, err)
			if c.pass {
				want = append(want, string(c.b))
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
