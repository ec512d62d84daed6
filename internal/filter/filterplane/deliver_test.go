// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/filter/filterset"
	"culvert/internal/filter/pcap"
	"culvert/internal/host/netdev"
	"culvert/internal/testbed"
)

// deliverBed is a host with a filter in this namespace, and a peer in another namespace that sends it frames of any kind.
type deliverBed struct {
	host *net.Interface
	peer *testbed.Namespace
	mac  net.HardwareAddr // of the peer
	fd   int              // the peer's packet socket
	id   byte             // of the last packet in fragments
}

// The source addresses of the peer's packets. No interface has them, so that no kernel answers in the peer's place.
var (
	peerAddr4 = netip.MustParseAddr("192.0.2.77")
	peerAddr6 = netip.MustParseAddr("2001:db8::77")
)

func newDeliverBed(t *testing.T) *deliverBed {
	t.Helper()
	testbed.InNamespace(t)
	b := &deliverBed{peer: testbed.NewNamespace(t)}
	b.host = testbed.AddVeth(t, "srv", "cli")
	b.peer.Take(t, "cli")
	b.peer.Must(t, func() error {
		if err := testbed.PrepareEnd("cli", "192.0.2.2/24"); err != nil {
			return err
		}
		l, err := netlink.LinkByName("cli")
		if err != nil {
			return err
		}
		b.mac = l.Attrs().HardwareAddr
		if err := netlink.LinkSetMTU(l, 9000); err != nil {
			return err
		}
		if _, err := netdev.Ethtool("cli", unix.ETHTOOL_SGRO, 1); err != nil { // so that answers of the filter arrive
			return err
		}
		if b.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(bigEndian16(unix.ETH_P_ALL))); err != nil {
			return err
		}
		if err := unix.SetsockoptTimeval(b.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 30}); err != nil {
			return err
		}
		return unix.Bind(b.fd, &unix.SockaddrLinklayer{Ifindex: l.Attrs().Index, Protocol: bigEndian16(unix.ETH_P_ALL)})
	})
	t.Cleanup(func() { unix.Close(b.fd) })
	if err := testbed.PrepareEnd("srv", synAddr4.String()+"/24", synAddr6.String()+"/64"); err != nil {
		t.Fatal(err)
	}
	l, err := netlink.LinkByName("srv")
	if err == nil {
		err = netlink.LinkSetMTU(l, 9000)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []netip.Addr{peerAddr4, peerAddr6} {
		n := netlink.Neigh{LinkIndex: b.host.Index, State: netlink.NUD_PERMANENT, IP: a.AsSlice(), HardwareAddr: b.mac}
		if err := netlink.NeighSet(&n); err != nil {
			t.Fatalf("neighbor %s: %v", a, err)
		}
	}
	// Frames are lost as long as the kernel has not noticed that both ends are up.
	b.peer.Must(t, func() error { return untilUp("cli") })
	if err := untilUp("srv"); err != nil {
		t.Fatal(err)
	}
	// IPv6 takes some time after the link is up.
	for end := time.Now().Add(time.Minute); !b.answered(t, b.in(pack6(58, echo6()))); {
		if time.Now().After(end) {
			t.Fatal("the host does not answer IPv6")
		}
		time.Sleep(20 * time.Millisecond)
	}
	testbed.Sysctl(t, "ipv4/tcp_syncookies", "2")
	for _, to := range []netip.Addr{synAddr4, synAddr6} {
		testbed.StartWebServer(t, netip.AddrPortFrom(to, 80))
	}
	return b
}

// untilUp waits until the kernel says that an interface is up.
func untilUp(name string) error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		l, err := netlink.LinkByName(name)
		if err != nil || l.Attrs().OperState == netlink.OperUp {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s is %s", name, l.Attrs().OperState)
		}
	}
}

func bigEndian16(v uint16) uint16 { return v<<8 | v>>8 }

// filtered attaches a data plane with a filter to the host's interface.
func (b *deliverBed) filtered(t *testing.T, filter deliverFilter) *datapath.Instance {
	t.Helper()
	inst, err := datapath.Attach(datapath.Options{Name: "f", Interfaces: []string{"srv"}, Temporary: true, Parts: []datapath.Part{NewPart()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(inst.Close)
	err = EditAndSets(inst, func(f *Filter) error { filter.change(f); return nil }, filter.members)
	if err != nil {
		t.Fatal(err)
	}
	return inst
}

// heard sends frames to the host and returns the host's answers. The answers are complete when two ARP requests, sent after the
// frames and one after the other, are answered.
func (b *deliverBed) heard(t *testing.T, frames ...[]byte) (answers [][]byte) {
	t.Helper()
	for _, f := range frames {
		if _, err := unix.Write(b.fd, f); err != nil {
			t.Fatalf("sending %d bytes: %v", len(f), err)
		}
	}
	ask := slices.Concat(b.host.HardwareAddr, b.mac, []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, 1}, b.mac, []byte{192, 0, 2, 78},
		make([]byte, 6), synAddr4.AsSlice(), make([]byte, 18))
	for range 2 {
		if _, err := unix.Write(b.fd, ask); err != nil {
			t.Fatal(err)
		}
		for {
			buf := make([]byte, 10000)
			n, err := unix.Read(b.fd, buf)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				t.Fatalf("waiting for the host's answer to ARP: %v", err)
			}
			f := buf[:n]
			if !bytes.Equal(f[6:12], b.host.HardwareAddr) {
				continue // the peer's own frame
			}
			if f[12] == 8 && f[13] == 6 && f[21] == 2 {
				break
			}
			answers = append(answers, f)
		}
	}
	return answers
}

// answer sends frames with an echo request or a SYN, and returns the IP protocol of the host's answer, 0 if there is none.
func (b *deliverBed) answer(t *testing.T, frames ...[]byte) (proto byte) {
	t.Helper()
	for _, f := range b.heard(t, frames...) {
		for len(f) > 16 && f[12] == 0x81 && f[13] == 0 { // the socket strips only the outermost tag
			f = slices.Delete(f, 12, 16)
		}
		switch {
		case len(f) >= 42 && f[12] == 8 && f[13] == 0 && (f[23] == 6 || f[23] == 1 && f[34] == 0):
			return f[23]
		case len(f) >= 62 && f[12] == 0x86 && (f[20] == 6 || f[20] == 58 && f[54] == 129):
			return f[20]
		}
	}
	return 0
}

func (b *deliverBed) answered(t *testing.T, frames ...[]byte) bool {
	t.Helper()
	return b.answer(t, frames...) != 0
}

// expect checks whether a delivery is answered. A busy machine may drop a packet or its answer, so a delivery without an answer
// is sent up to twice more. The log has the kernel's counters that have changed.
func (b *deliverBed) expect(t *testing.T, under string, d delivery, want bool) {
	t.Helper()
	before := snmp6(t)
	got := b.answered(t, d.frames...)
	for n := 0; want && !got && n < 2; n++ {
		t.Logf("%s: %s: not answered, sent again; the kernel counted %v", under, d.name, since(before, snmp6(t)))
		time.Sleep(50 * time.Millisecond)
		got = b.answered(t, d.frames...)
	}
	if got != want {
		t.Errorf("%s: %s: answered: %v; the kernel counted %v", under, d.name, got, since(before, snmp6(t)))
	}
}

// snmp6 returns the kernel's counters of IPv6 and ICMPv6 in this namespace.
func snmp6(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/net/snmp6")
	if err != nil {
		t.Fatal(err)
	}
	counters := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			counters[name], _ = strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return counters
}

// since returns by how much each counter has changed, without those that have not.
func since(before, after map[string]int) map[string]int {
	changed := map[string]int{}
	for name, n := range after {
		if n != before[name] {
			changed[name] = n - before[name]
		}
	}
	return changed
}

// ether returns an Ethernet header: MAC addresses, tags of four bytes each, and an EtherType.
func (b *deliverBed) ether(kind uint16, tags ...uint32) []byte {
	f := append(slices.Clone(b.host.HardwareAddr), b.mac...)
	for _, tag := range tags {
		f = binary.BigEndian.AppendUint32(f, tag)
	}
	return binary.BigEndian.AppendUint16(f, kind)
}

// in returns a frame with an IP packet.
func (b *deliverBed) in(packet []byte, tags ...uint32) []byte {
	kind := uint16(0x0800)
	if packet[0]>>4 == 6 {
		kind = 0x86dd
	}
	return append(b.ether(kind, tags...), packet...)
}

const (
	priority   = 0x81000000 // a tag of 802.1Q with VLAN 0
	priorityAD = 0x88a80000 // of 802.1ad
)

// pack4 returns an IPv4 packet with options. Fragment holds the flags and the fragment offset.
func pack4(proto byte, fragment uint16, options, payload []byte) []byte {
	be := binary.BigEndian
	p := []byte{0x45 + byte(len(options)/4), 0}
	p = be.AppendUint16(p, uint16(20+len(options)+len(payload)))
	p = be.AppendUint16(append(p, 0x12, 0x34), fragment)
	p = append(p, 64, proto, 0, 0)
	p = append(append(append(p, peerAddr4.AsSlice()...), synAddr4.AsSlice()...), options...)
	be.PutUint16(p[10:], ^onesComplement(p, 0))
	return append(p, payload...)
}

// pack6 returns an IPv6 packet. The payload begins with the extension headers, if there are any.
func pack6(next byte, payload []byte) []byte {
	p := binary.BigEndian.AppendUint16([]byte{0x60, 0, 0, 0}, uint16(len(payload)))
	p = append(append(append(p, next, 64), peerAddr6.AsSlice()...), synAddr6.AsSlice()...)
	return append(p, payload...)
}

// ext6 returns an IPv6 packet with extension headers of these kinds. A header has eight bytes, unless its kind has another
// length.
func ext6(next byte, payload []byte, kinds ...byte) []byte {
	for _, kind := range slices.Backward(kinds) {
		h := []byte{next, 0, 1, 4, 0, 0, 0, 0} // options: one PadN
		switch kind {
		case 43, 44: // routing: no segments left; fragment: the only one of its packet
			h = []byte{next, 0, 0, 0, 0, 0, 0, 9}
		case 51:
			h = []byte{next, 1, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1}
		case 135: // a binding refresh request
			h = []byte{next, 0, 0, 0, 0, 0, 0, 0}
		case longOptions:
			h, kind = longHeader(next), 60
		}
		next, payload = kind, append(h, payload...)
	}
	return pack6(next, payload)
}

// longOptions stands for destination options of the greatest length that the kernel accepts.
const longOptions = 255

// longHeader returns 2,040 bytes of destination options: eight unknown options of a type that receivers have to skip.
func longHeader(next byte) []byte {
	h := []byte{next, 2040/8 - 1}
	for range 7 {
		h = append(append(h, 0x1e, 253), make([]byte, 253)...)
	}
	return append(append(h, 0x1e, 251), make([]byte, 251)...)
}

func echo4() []byte {
	p := append([]byte{8, 0, 0, 0, 0x12, 0x34, 0, 1}, bytes.Repeat([]byte("x"), 24)...)
	binary.BigEndian.PutUint16(p[2:], ^onesComplement(p, 0))
	return p
}

func sum6(proto byte, p []byte) uint32 {
	pseudo := append(peerAddr6.AsSlice(), synAddr6.AsSlice()...)
	return uint32(onesComplement(pseudo, uint32(len(p))+uint32(proto)))
}

func echo6() []byte {
	p := append([]byte{128, 0, 0, 0, 0x12, 0x34, 0, 1}, bytes.Repeat([]byte("x"), 24)...)
	binary.BigEndian.PutUint16(p[2:], ^onesComplement(p, sum6(58, p)))
	return p
}

// synTo80 returns a SYN to port 80 of the host.
func synTo80(v6 bool) []byte {
	src, dst := peerAddr4, synAddr4
	if v6 {
		src, dst = peerAddr6, synAddr6
	}
	be := binary.BigEndian
	p := be.AppendUint16(be.AppendUint16(nil, 4000), 80)
	p = append(be.AppendUint32(p, 77), 0, 0, 0, 0, 0x60, tcpSYN, 0xff, 0xff, 0, 0, 0, 0, 2, 4, 5, 0xb4)
	be.PutUint16(p[16:], tcpSum(src, dst, p))
	return p
}

// deliverFilter is a filter for a deliverBed, with the members of its sets.
type deliverFilter struct {
	change  func(*Filter)
	members map[string]Members
}

// deliverFilters returns filters that drop all packets of deliveries, except for those that go past them.
func deliverFilters(t *testing.T) map[string]deliverFilter {
	t.Helper()
	expression := func(words ...string) deliverFilter {
		var rules []Rule
		for n, w := range words {
			code, err := pcap.Compile(w)
			if err != nil {
				t.Fatal(err)
			}
			rules = append(rules, Rule{Name: fmt.Sprint("no", n), Action: Drop, Code: code})
		}
		return deliverFilter{func(f *Filter) { f.Rules = rules }, nil}
	}
	return map[string]deliverFilter{
		"expression": expression("icmp or icmp6 or tcp"),
		// With the rule of docs/filter.md against headers in front of others.
		"strict": expression("icmp or icmp6 or tcp", "ip6 and (ip6[6] = 43 or ip6[6] = 44 or ip6[6] = 60 or "+
			"(ip6[6] = 0 and not (ip6[40:2] = 0x3a00 and (ip6[48] = 143 or (ip6[48] >= 130 and ip6[48] <= 132)))))"),
		"set": {func(f *Filter) {
			f.Sets = []Set{{Name: "bad"}}
			f.Rules = []Rule{{Name: "nobad", Action: Drop, Src: []SetRef{{Set: "bad"}}}}
		}, map[string]Members{"bad": {Prefixes: parsePrefixes(t, peerAddr4.String(), peerAddr6.String())}}},
		"ports": {func(f *Filter) {
			f.Sets = []Set{{Name: "service", Endpoints: true}}
			f.Rules = []Rule{{Name: "noservice", Action: Drop, Dst: []SetRef{{Set: "service"}}}}
		}, map[string]Members{"service": {Endpoints: filterset.Endpoints{
			netip.AddrPortFrom(synAddr4, 80): filterset.Never, netip.AddrPortFrom(synAddr6, 80): filterset.Never,
		}}}},
	}
}

// delivery is a way to send the host a packet that it would answer.
type delivery struct {
	name      string
	frames    [][]byte
	delivered bool     // the kernel delivers the packet to its protocol, which answers
	past      []string // the names of filters that let it pass, as their pages say
}

func (b *deliverBed) deliveries() []delivery {
	echo, ping6 := pack4(1, 0, nil, echo4()), pack6(58, echo6())
	syn, syn6 := pack4(6, 0, nil, synTo80(false)), pack6(6, synTo80(true))
	tcp, tcp6 := synTo80(false), synTo80(true)
	tcp6 = append(tcp6, make([]byte, 16)...) // for a second fragment
	tcp6[16], tcp6[17] = 0, 0
	binary.BigEndian.PutUint16(tcp6[16:], tcpSum(peerAddr6, synAddr6, tcp6))
	icmp := []string{"ports"}                     // ICMP has no ports
	behindHeaders := []string{"expression"}       // an expression does not look behind extension headers
	icmpBehind := []string{"expression", "ports"} // both
	tags := func(n int, tag uint32) (all []uint32) {
		for range n {
			all = append(all, tag)
		}
		return all
	}
	to := func(mac net.HardwareAddr, frame []byte) []byte {
		frame = slices.Clone(frame)
		copy(frame, mac)
		return frame
	}
	broadcast, multicast := net.HardwareAddr{255, 255, 255, 255, 255, 255}, net.HardwareAddr{1, 0, 0x5e, 0, 0, 1}
	snap := func(packet []byte) []byte {
		body := append([]byte{0xaa, 0xaa, 3, 0, 0, 0, 8, 0}, packet...)
		return append(b.ether(uint16(len(body))), body...)
	}
	one := func(f []byte) [][]byte { return [][]byte{f} }
	repeated := func(n int, kind byte) []byte { return bytes.Repeat([]byte{kind}, n) }
	all := []delivery{
		{"an echo request", one(b.in(echo)), true, icmp},
		{"an echo request, IPv6", one(b.in(ping6)), true, icmp},
		{"a SYN", one(b.in(syn)), true, nil},
		{"a SYN, IPv6", one(b.in(syn6)), true, nil},
		{"a SYN, padded", one(append(b.in(syn), make([]byte, 30)...)), true, nil},
		{"a runt", one(b.in(pack4(1, 0, nil, echo4()))[:42:42]), false, icmp},

		// Tags.
		{"802.1ad, VLAN 0", one(b.in(echo, priorityAD)), true, icmp},
		{"802.1ad and 802.1Q, VLAN 0", one(b.in(echo, priorityAD, priority)), true, icmp},
		{"priority 7", one(b.in(echo, priority|0xe000)), true, icmp},
		{"drop eligible", one(b.in(ping6, priority|0x1000)), true, icmp},
		{"VLAN 5", one(b.in(echo, priority|5)), false, icmp},
		{"VLAN 0, VLAN 5", one(b.in(echo, priority, priority|5)), false, icmp},
		{"VLAN 5, VLAN 0", one(b.in(echo, priority|5, priority)), false, icmp},
		{"0x9100, VLAN 0", one(b.in(echo, 0x91000000)), false, icmp},
		{"a SYN, VLAN 0 twice", one(b.in(syn, priority, priority)), true, nil},
		{"a SYN, IPv6, VLAN 0", one(b.in(syn6, priority)), true, nil},
		{"a SYN, nine tags", one(b.in(syn, tags(9, priority)...)), true, nil},

		// Other ways to put IP into Ethernet.
		{"SNAP", one(snap(echo)), false, icmp},
		{"SNAP behind VLAN 0", one(append(b.ether(priority>>16), append([]byte{0, 0}, snap(echo)[12:]...)...)), false, icmp},
		{"PPPoE", one(append(b.ether(0x8864), append([]byte{0x11, 0, 0, 7, 0, byte(len(echo) + 2), 0, 0x21}, echo...)...)), false, icmp},
		{"MPLS", one(append(b.ether(0x8847), append([]byte{0, 0, 0x11, 64}, echo...)...)), false, icmp},
		{"MACsec", one(append(b.ether(0x88e5), append([]byte{0, 0, 0, 0, 0, 1, 8, 0}, echo...)...)), false, icmp},
		{"IPIP", one(b.in(pack4(4, 0, nil, echo))), false, icmp},
		{"6in4", one(b.in(pack4(41, 0, nil, ping6))), false, icmp},
		{"GRE", one(b.in(pack4(47, 0, nil, append([]byte{0, 0, 8, 0}, echo...)))), false, icmp},
		{"GRE over IPv6", one(b.in(pack6(47, append([]byte{0, 0, 8, 0}, echo...)))), false, icmp},

		// MAC addresses.
		{"broadcast", one(to(broadcast, b.in(echo))), true, icmp},
		{"multicast", one(to(multicast, b.in(echo))), true, icmp},
		{"a SYN, broadcast", one(to(broadcast, b.in(syn))), false, nil},
		{"another host's", one(to(net.HardwareAddr{2, 9, 9, 9, 9, 9}, b.in(echo))), false, icmp},

		// IPv4.
		{"options of IPv4", one(b.in(pack4(6, 0, []byte{1, 1, 1, 0}, synTo80(false)))), true, nil},
		{"40 bytes of options", one(b.in(pack4(6, 0, append(repeated(39, 1), 0), synTo80(false)))), true, nil},
		{"a source route", one(b.in(pack4(6, 0, []byte{0x83, 7, 4, 192, 0, 2, 1, 0}, synTo80(false)))), false, nil},
		{"fragments", b.fragments4(1, echo4(), part{0, 16, true}, part{16, 32, false}), true, icmp},
		{"fragments of TCP, eight bytes first", b.fragments4(6, tcp, part{0, 8, true}, part{8, 24, false}), true, nil},
		{"the same, the last first", b.fragments4(6, tcp, part{8, 24, false}, part{0, 8, true}), true, nil},
		{"fragments, the first twice", b.fragments4(6, tcp, part{0, 8, true}, part{0, 8, true}, part{8, 24, false}), true, nil},
		{"a first fragment of four bytes", b.fragments4(6, tcp, part{0, 4, true}, part{0, 8, true}, part{8, 24, false}), true, nil},
		{"fragments that overlap", b.fragments4(6, tcp, part{0, 16, true}, part{8, 24, false}), false, nil},

		// IPv6.
		{"hop-by-hop options, echo", one(b.in(ext6(58, echo6(), 0))), true, icmpBehind},
		{"hop-by-hop options", one(b.in(ext6(6, synTo80(true), 0))), true, behindHeaders},
		{"destination options", one(b.in(ext6(6, synTo80(true), 60))), true, behindHeaders},
		{"a routing header", one(b.in(ext6(6, synTo80(true), 43))), true, behindHeaders},
		{"a fragment header alone", one(b.in(ext6(6, synTo80(true), 44))), true, nil},
		{"eight headers", one(b.in(ext6(6, synTo80(true), append([]byte{0, 60, 44, 43}, repeated(4, 60)...)...))), true, behindHeaders},
		{"nine headers", one(b.in(ext6(6, synTo80(true), repeated(9, 60)...))), true, behindHeaders},
		{"nine headers and VLAN 0", one(b.in(ext6(6, synTo80(true), repeated(9, 60)...), priority)), true, behindHeaders},
		{"a hundred headers", one(b.in(ext6(6, synTo80(true), repeated(100, 60)...))), true, behindHeaders},
		{"headers of two buffers", one(b.in(ext6(6, synTo80(true), longOptions, longOptions))), true, behindHeaders},
		{"headers of two buffers, echo", one(b.in(ext6(58, echo6(), longOptions, longOptions))), true, behindHeaders},
		{"options that end a buffer", one(b.in(ext6(6, synTo80(true), append([]byte{longOptions}, repeated(170, 60)...)...))), true,
			behindHeaders},
		{"authentication", one(b.in(ext6(6, synTo80(true), 51))), false, behindHeaders},
		{"mobility", one(b.in(ext6(6, synTo80(true), 135))), false, nil},
		{"HIP", one(b.in(ext6(6, synTo80(true), 139))), false, nil},
		{"shim6", one(b.in(ext6(6, synTo80(true), 140))), false, nil},
		{"length 0, hop-by-hop", one(noLength(b.in(ext6(6, synTo80(true), 0)))), true, behindHeaders},
		{"a jumbogram", one(noLength(b.in(pack6(0, append([]byte{6, 0, 0xc2, 4, 0, 0, 0, 32}, synTo80(true)...))))), false, nil},
		{"an IPv4 address as source", one(mapped(b.in(syn6))), false, nil},
		{"fragments, IPv6", b.fragments6(6, tcp6, part{0, 24, true}, part{24, 40, false}), true, nil},
		{"fragments, IPv6, eight bytes first", b.fragments6(6, tcp6, part{0, 8, true}, part{8, 40, false}), false, nil},
		{"fragments, IPv6, that overlap", b.fragments6(6, tcp6, part{0, 24, true}, part{16, 40, false}), false, nil},
		{"fragments of headers, IPv6", b.fragments6(60, append([]byte{6, 0, 1, 4, 0, 0, 0, 0}, tcp6...), part{0, 8, true},
			part{8, 48, false}), false, nil},
		{"fragments with headers, IPv6", b.fragments6(60, append([]byte{6, 0, 1, 4, 0, 0, 0, 0}, tcp6...), part{0, 32, true},
			part{32, 48, false}), true, behindHeaders},
		{"a fragment within one", one(b.in(ext6(6, synTo80(true), 44, 60, 44))), false, behindHeaders},
	}
	for _, n := range []int{1, 2, 3, 7, 8, 9, 20} {
		past := icmp
		if n > 8 {
			past = nil // the filter drops frames with more than eight tags
		}
		all = append(all, delivery{fmt.Sprint("VLAN 0, times ", n), one(b.in(echo, tags(n, priority)...)), true, past})
	}
	return all
}

// noLength sets the payload length of an IPv6 packet to 0.
func noLength(frame []byte) []byte {
	frame[18], frame[19] = 0, 0
	return frame
}

// mapped replaces the source of an IPv6 packet by an IPv4-mapped address.
func mapped(frame []byte) []byte {
	copy(frame[22:], netip.AddrFrom16(peerAddr4.As16()).AsSlice())
	return frame
}

// part is the part of a payload that a fragment carries, in bytes. More is the flag for more fragments.
type part struct {
	from, to int
	more     bool
}

// fragments4 returns the fragments of a packet with an identification of its own.
func (b *deliverBed) fragments4(proto byte, payload []byte, parts ...part) (frames [][]byte) {
	b.id++
	for _, p := range parts {
		field := uint16(p.from / 8)
		if p.more {
			field |= 0x2000
		}
		frame := b.in(pack4(proto, field, nil, payload[p.from:p.to]))
		frame[19] = b.id
		frame[24], frame[25] = 0, 0
		binary.BigEndian.PutUint16(frame[24:], ^onesComplement(frame[14:34], 0))
		frames = append(frames, frame)
	}
	return frames
}

// fragments6 is fragments4 for IPv6.
func (b *deliverBed) fragments6(next byte, payload []byte, parts ...part) (frames [][]byte) {
	b.id++
	for _, p := range parts {
		h := []byte{next, 0, byte(p.from >> 8), byte(p.from), 0, 0, 0, b.id}
		if p.more {
			h[3] |= 1
		}
		frames = append(frames, b.in(pack6(44, append(h, payload[p.from:p.to]...))))
	}
	return frames
}

// TestFilterDeliver sends packets in all ways in which the kernel may accept them. Without a filter it answers those that it
// delivers. The rules drop them all, except for those that go past a filter according to the pages.
func TestFilterDeliver(t *testing.T) {
	b := newDeliverBed(t)
	for _, d := range b.deliveries() {
		b.expect(t, "without a filter", d, d.delivered)
	}
	for name, filter := range deliverFilters(t) {
		inst := b.filtered(t, filter)
		for _, d := range b.deliveries() {
			b.expect(t, name, d, d.delivered && slices.Contains(d.past, name))
		}
		inst.Close()
	}
}

// TestFilterDeliverProtected sends the same packets to protected services. The filter answers a SYN, drops it, or lets it go on
// to the kernel, which answers with a cookie. None of them leaves state behind.
func TestFilterDeliverProtected(t *testing.T) {
	b := newDeliverBed(t)
	inst := b.filtered(t, deliverFilter{change: func(f *Filter) {
		f.Services = []Service{{Addr: netip.AddrPortFrom(synAddr4, 80)}, {Addr: netip.AddrPortFrom(synAddr6, 80)}}
	}})
	const byFilter, byKernel, tags, headers = "fwd filter-synack", "kernel", "drop filter-tags", "drop filter-headers"
	expect := map[string]string{
		"a SYN": byFilter, "a SYN, IPv6": byFilter, "a SYN, padded": byFilter, "a SYN, VLAN 0 twice": byFilter,
		"a SYN, IPv6, VLAN 0": byFilter, "a SYN, nine tags": tags, "VLAN 0, times 9": tags, "VLAN 0, times 20": tags,
		"nine headers": headers, "nine headers and VLAN 0": headers, "a hundred headers": headers,
		"headers of two buffers": headers, "headers of two buffers, echo": headers, "options that end a buffer": headers,
	}
	for _, d := range b.deliveries() {
		want := expect[d.name]
		delete(expect, d.name)
		if !d.delivered {
			continue
		}
		if want == "" {
			want = byKernel
		}
		_, before, _ := testbed.Counted(t, inst, "srv")
		cookies := netstat(t, "SyncookiesSent")
		proto := b.answer(t, d.frames...)
		_, after, _ := testbed.Counted(t, inst, "srv")
		if (proto != 0) != (want == byFilter || want == byKernel) {
			t.Errorf("%s: answered with protocol %d", d.name, proto)
		}
		for _, reason := range []string{byFilter, tags, headers} {
			if by := after[reason] != before[reason]; by != (want == reason) {
				t.Errorf("%s: counted as %s: %v", d.name, reason, by)
			}
		}
		if by := netstat(t, "SyncookiesSent") != cookies; by != (want == byKernel && proto == 6) {
			t.Errorf("%s: a cookie of the kernel: %v", d.name, by)
		}
	}
	if len(expect) > 0 {
		t.Errorf("no delivery has these names: %v", expect)
	}
	if n := halfOpen(t); n != 0 {
		t.Errorf("%d half open connections", n)
	}
	// The answer has no tags of VLAN 0: the kernel's answer would have none.
	action, out, err := inst.TestRun(b.in(pack4(6, 0, nil, synTo80(false)), priority|0x6000, priorityAD), "srv")
	if err != nil || action == testbed.XDPPass || action == testbed.XDPDrop {
		t.Fatalf("action %d, %v", action, err)
	}
	if kind := binary.BigEndian.Uint16(out[12:]); kind != 0x0800 {
		t.Errorf("the answer has type %#x", kind)
	}
}
