// SPDX-License-Identifier: Apache-2.0

//go:build example

package example_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/node"
	"culvert/internal/testbed"
)

// The data plane below is brought up by a file, and on interfaces. Routes name what becomes of packets to them.
var (
	client4 = netip.MustParseAddrPort("10.1.0.2:4000")
	client6 = netip.MustParseAddrPort("[fd01::2]:4000")
	liveEnd = netip.MustParseAddr("10.1.0.1")
)

// liveServices are what the file translates, and where to.
var liveServices = map[string]struct{ service, to netip.AddrPort }{
	"forward 4":   {netip.MustParseAddrPort("10.9.0.10:80"), netip.MustParseAddrPort("192.0.2.5:8080")},
	"forward 6":   {netip.MustParseAddrPort("[fd09::10]:80"), netip.MustParseAddrPort("[2001:db8::5]:8080")},
	"blackhole 4": {netip.MustParseAddrPort("10.9.0.11:80"), netip.MustParseAddrPort("198.51.100.1:8080")},
	"blackhole 6": {netip.MustParseAddrPort("[fd09::11]:80"), netip.MustParseAddrPort("[2001:db8:dead::1]:8080")},
	"resolve 4":   {netip.MustParseAddrPort("10.9.0.12:80"), netip.MustParseAddrPort("203.0.113.1:8080")},
	"resolve 6":   {netip.MustParseAddrPort("[fd09::12]:80"), netip.MustParseAddrPort("[2001:db8:fead::1]:8080")},
}

// exampleTable is [example] of the file.
func exampleTable() string {
	text := fmt.Sprintf("[example]\ntunnel = %q\n", liveEnd)
	for _, s := range liveServices {
		for _, protocol := range []string{"tcp", "udp"} {
			text += fmt.Sprintf("[[example.service]]\naddress = %q\nprotocol = %q\nto = %q\n", s.service, protocol, s.to)
		}
	}
	return text
}

const routeTable = "[route]\nblocks4 = 64\nblocks6 = 1024\n"

// live is a network namespace with interfaces west, where clients are, and east, behind which all networks are.
type live struct {
	t          *testing.T
	west, east *net.Interface
	send       int // a socket that frames come in to west by
	// what leaves by east, and what west gives to the kernel
	left, passed int
}

func newLive(t *testing.T) *live {
	t.Helper()
	testbed.InNamespace(t)
	for _, which := range []string{"all", "default"} {
		testbed.Sysctl(t, "ipv6/conf/"+which+"/disable_ipv6", "0")
		testbed.Sysctl(t, "ipv6/conf/"+which+"/forwarding", "1")
		testbed.Sysctl(t, "ipv4/conf/"+which+"/forwarding", "1")
		testbed.Sysctl(t, "ipv4/conf/"+which+"/rp_filter", "0")
	}
	l := &live{t: t, west: testbed.AddVeth(t, "west", "westp"), east: testbed.AddVeth(t, "east", "eastp")}
	for _, peer := range []string{"westp", "eastp"} { // which would send packets of its own
		testbed.Sysctl(t, "ipv6/conf/"+peer+"/disable_ipv6", "1")
	}
	mac := "lladdr " + gatewayMAC.String() + " dev east nud permanent"
	for _, cmd := range []string{
		"addr add 10.1.0.1/24 dev west", "addr add 10.2.0.1/24 dev east",
		"addr add fd01::1/64 dev west nodad", "addr add fd02::1/64 dev east nodad",
		"neigh replace 10.2.0.9 " + mac, "neigh replace fd02::9 " + mac,
		"route add 192.0.2.0/24 via 10.2.0.9", "route add 2001:db8::/48 via fd02::9",
		"route add 10.9.0.0/16 via 10.2.0.9", "route add fd09::/16 via fd02::9",
		"route add 203.0.113.0/24 via 10.2.0.77", "route add 2001:db8:fead::/48 via fd02::77",
		"route add blackhole 198.51.100.0/24", "route add blackhole 2001:db8:dead::/48",
	} {
		testbed.IP(t, cmd)
	}
	// What is redirected to a veth arrives while its peer has a program.
	must(t, testbed.PassAll(t, testbed.Device(t, "eastp").Index))
	l.send = rawSocket(t, "westp", 0)
	l.left, l.passed = rawSocket(t, "eastp", unix.ETH_P_ALL), rawSocket(t, "west", unix.ETH_P_ALL)
	t.Cleanup(func() { must(t, node.DetachAll(io.Discard)) })
	return l
}

// rawSocket is a packet socket on an interface.
func rawSocket(t *testing.T, name string, protocol uint16) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bpfobj.Wire16(protocol), Ifindex: testbed.Device(t, name).Index}))
	return fd
}

// received are the frames that a socket has now, but for those that the host itself sends by the interface.
func received(t *testing.T, fd int) (frames [][]byte) {
	t.Helper()
	for {
		b := make([]byte, 4096)
		n, from, err := unix.Recvfrom(fd, b, 0)
		if err == unix.EAGAIN {
			return frames
		}
		must(t, err)
		if a := from.(*unix.SockaddrLinklayer); a.Pkttype != unix.PACKET_OUTGOING {
			frames = append(frames, b[:n])
		}
	}
}

func holds(frames [][]byte, frame []byte) bool {
	for _, f := range frames {
		if bytes.Equal(f, frame) {
			return true
		}
	}
	return false
}

// with is a frame with other MAC addresses.
func with(frame []byte, dst, src net.HardwareAddr) []byte {
	return append(append(bytes.Clone(dst), src...), frame[12:]...)
}

// coming is a packet as it comes in by west, leaving as it leaves by east.
func (l *live) coming(p packet) []byte { return with(p.frame(l.t), l.west.HardwareAddr, peerMAC) }

func (l *live) leaving(p packet) []byte {
	p.ttl = 63
	return with(p.frame(l.t), gatewayMAC, l.east.HardwareAddr)
}

// inside puts an outer header for the end of the tunnel in front of a packet.
func (l *live) inside(p packet) []byte {
	return with(tunnelled(l.t, p.frame(l.t), liveEnd), l.west.HardwareAddr, peerMAC)
}

// in has a frame come in by west.
func (l *live) in(frame []byte) {
	l.t.Helper()
	must(l.t, unix.Sendto(l.send, frame, 0, &unix.SockaddrLinklayer{Ifindex: testbed.Device(l.t, "westp").Index}))
}

// counts are the packets of west by verdict and reason.
func (l *live) counts() (byReason map[string]uint64, total uint64) {
	l.t.Helper()
	inst, err := datapath.OpenHere("culvert")
	must(l.t, err)
	defer inst.Close()
	_, byReason, total = testbed.Counted(l.t, inst, "west")
	return byReason, total
}

// expect sends a frame in by west. It is counted once, under the reason, and what the reason says becomes of it: want leaves
// by east, or goes to the kernel. There are no subtests: these would have other threads, and so another namespace.
func (l *live) expect(what string, frame []byte, reason string, want []byte) {
	l.t.Helper()
	received(l.t, l.left)
	received(l.t, l.passed)
	before, total := l.counts()
	l.in(frame)
	verdict, _, _ := strings.Cut(reason, " ")
	leaves, isPassed := verdict == "fwd", verdict == "pass" || verdict == "punt"
	var after map[string]uint64
	var left, passed [][]byte
	for end := time.Now().Add(testbed.Patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		left, passed = append(left, received(l.t, l.left)...), append(passed, received(l.t, l.passed)...)
		var now uint64
		if after, now = l.counts(); now > total && (holds(left, want) || !leaves) && (holds(passed, want) || !isPassed) {
			break
		}
	}
	counted := make(map[string]uint64)
	for r, n := range after {
		n -= before[r]
		if n == 0 {
			continue
		}
		if r == "fwd route-fib" && reason == "fwd route" { // the mirror is being written: the kernel was asked for the same way
			r = reason
		}
		counted[r] += n
	}
	if !maps.Equal(counted, map[string]uint64{reason: 1}) {
		l.t.Errorf("%s: counted as %v, want %s once", what, counted, reason)
	}
	if holds(left, want) != leaves {
		l.t.Errorf("%s: in   %x\nleft by east %x\nwant %x", what, frame, left, want)
	}
	if holds(passed, want) != isPassed {
		l.t.Errorf("%s: in   %x\nthe kernel got %x\nwant %x", what, frame, passed, want)
	}
	if l.t.Failed() {
		l.t.FailNow()
	}
}

// awaitForwarding sends a packet that the IP router forwards until it does: it leaves all to the kernel until it knows the
// interfaces that were attached.
func (l *live) awaitForwarding() {
	l.t.Helper()
	forwarded := func() uint64 {
		counts, _ := l.counts()
		return counts["fwd route"] + counts["fwd route-fib"]
	}
	before := forwarded()
	p := packet{src: client4, dst: netip.MustParseAddrPort("192.0.2.77:80"), payload: make([]byte, 20)}
	eventually(l.t, "packets to be forwarded", func() bool {
		_, total := l.counts()
		l.in(l.coming(p))
		eventually(l.t, "a packet to be counted", func() bool { _, now := l.counts(); return now > total })
		return forwarded() > before
	})
}

// translation has a packet for each way out of the stages behind, as it is and in the tunnel.
func (l *live) translation(when string) {
	for name, s := range liveServices {
		for _, udp := range []bool{false, true} {
			p := packet{src: client4, dst: s.service, udp: udp, payload: make([]byte, 20)}
			if s.service.Addr().Is6() {
				p.src = client6
			}
			out, expired := p, p
			out.dst, expired.ttl = s.to, 1
			type row struct {
				in     packet
				reason string
				want   []byte
			}
			var rows []row
			switch network, _, _ := strings.Cut(name, " "); network {
			case "forward":
				rows = []row{{p, "fwd route", l.leaving(out)}, {expired, "punt route-ttl", l.coming(expired)}}
			case "resolve":
				rows = []row{{p, "punt route-neighbor", l.coming(p)}}
			case "blackhole":
				rows = []row{{p, "drop route-blackhole", l.coming(p)}}
			}
			for _, r := range rows {
				what := fmt.Sprintf("%s: %s, UDP %v, ", when, name, udp)
				l.expect(what+"as it is", l.coming(r.in), r.reason, r.want)
				if p.src.Addr().Is4() {
					l.expect(what+"in the tunnel", l.inside(r.in), r.reason, r.want)
				}
			}
		}
	}
	p := packet{src: client4, dst: liveServices["forward 4"].service, fragment: true, payload: make([]byte, 20)}
	l.expect(when+": a fragment", l.coming(p), "punt example-headers", l.coming(p))
	cut := with(tunnelled(l.t, p.frame(l.t)[:30], liveEnd), l.west.HardwareAddr, peerMAC)
	l.expect(when+": nothing whole in the tunnel", cut, "drop example-tunnel", cut)
}

// liveOne is a packet to a service that is forwarded, and how it leaves.
func liveOne() (in, out packet) {
	in = packet{src: client4, dst: liveServices["forward 4"].service, payload: make([]byte, 20)}
	out = in
	out.dst = liveServices["forward 4"].to
	return in, out
}

// A file brings the stage up like every other one, and takes it off again. Its program in front stands behind the filter's.
func TestFile(t *testing.T) {
	l := newLive(t)
	p := serve(t, exampleTable()+routeTable)
	l.awaitForwarding()
	l.translation("new")
	if !strings.Contains(testbed.Tree(t), "/example/") {
		t.Errorf("nothing is pinned of the program in front:\n%s", testbed.Tree(t))
	}
	p.stop()
	in, out := liveOne()
	l.expect("without a process", l.inside(in), "fwd route-fib", l.leaving(out))

	p = serve(t, filterTable(t)+exampleTable()+routeTable)
	l.awaitForwarding()
	l.expect("behind a filter of what comes by the tunnel", l.inside(in), "drop filter", l.coming(in))
	l.expect("behind a filter of what comes by the tunnel", l.coming(in), "fwd route", l.leaving(out))
	p.stop()

	p = serve(t, routeTable)
	l.awaitForwarding()
	l.expect("without the table", l.coming(in), "fwd route", l.leaving(in))
	l.expect("without the table", l.inside(in), "pass route-local", l.inside(in))
	if strings.Contains(testbed.Tree(t), "/example/") {
		t.Errorf("something is pinned of a program that is not in front any more:\n%s", testbed.Tree(t))
	}
	p.stop()
}

// TestReload has one process read files with and without the table, and one with another service.
func TestReload(t *testing.T) {
	l := newLive(t)
	in, out := liveOne()
	p := serve(t, routeTable)
	l.awaitForwarding()
	l.expect("without the table", l.coming(in), "fwd route", l.leaving(in))
	p.reload(exampleTable() + routeTable)
	l.awaitForwarding()
	l.expect("with it", l.inside(in), "fwd route", l.leaving(out))
	other := netip.AddrPortFrom(out.dst.Addr(), out.dst.Port()+1)
	p.reload(strings.ReplaceAll(exampleTable(), out.dst.String(), other.String()) + routeTable)
	l.awaitForwarding()
	out.dst = other
	l.expect("to another port", l.coming(in), "fwd route", l.leaving(out))
	p.reload(filterTable(t) + exampleTable() + routeTable)
	l.awaitForwarding()
	l.expect("behind a filter", l.inside(in), "drop filter", l.coming(in))
	p.reload(routeTable)
	l.awaitForwarding()
	l.expect("off again", l.coming(in), "fwd route", l.leaving(in))
	p.stop()
}

// filterTable is a filter that drops what comes from the tunnel's far end: it looks at the outer header.
func filterTable(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tunnel.ddd")
	// src host 9.9.9.9, as tcpdump -ddd prints it.
	must(t, os.WriteFile(path, []byte("6\n40 0 0 12\n21 0 3 2048\n32 0 0 26\n21 0 1 151587081\n6 0 0 262144\n6 0 0 0\n"), 0o600))
	return fmt.Sprintf("[[filter.rule]]\nname = \"tunnel\"\naction = \"drop\"\nprogram = %q\n", path)
}

// Detaching takes all of it off, and a process that is to stay attached brings it back.
func TestDetached(t *testing.T) {
	l := newLive(t)
	in, out := liveOne()
	p := serve(t, "detached = \"attach\"\n"+exampleTable()+routeTable)
	l.awaitForwarding()
	l.expect("new", l.inside(in), "fwd route", l.leaving(out))
	must(t, node.DetachAll(io.Discard))
	eventually(t, "the process to attach again", func() bool {
		now := testbed.XDPProgram(t, "west")
		return now != 0 && now == testbed.XDPProgram(t, "east") && strings.Contains(testbed.Tree(t), "/example/")
	})
	l.awaitForwarding()
	l.expect("attached again", l.inside(in), "fwd route", l.leaving(out))
	p.stop()

	must(t, node.DetachAll(io.Discard))
	if west, east := testbed.XDPProgram(t, "west"), testbed.XDPProgram(t, "east"); west != 0 || east != 0 || strings.Contains(testbed.Tree(t), "example") {
		t.Errorf("programs %d and %d, pins\n%s", west, east, testbed.Tree(t))
	}
	received(t, l.passed)
	l.in(l.inside(in))
	var passed [][]byte
	eventually(t, "the kernel to get the outer header again", func() bool {
		passed = append(passed, received(t, l.passed)...)
		return holds(passed, l.inside(in))
	})
}
