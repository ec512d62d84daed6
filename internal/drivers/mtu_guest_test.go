// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/testbed"
)

// The rows about lengths and about IPv6. Packets go through twice: with culvert, and through the kernel alone. What comes out of both
// ports has to be the same, with the kernel's own answers and fragments among it.
func init() {
	trials["ipv6"] = func(m *trial) string { return m.like(1500, 1500, m.corners6()) }
	trials["mtu-all"] = func(m *trial) string { return m.like(1500, 1400, m.lengths(1400, 1500)) }
	trials["jumbo6"] = func(m *trial) string {
		return m.like(farMTU, farMTU, []corner{
			m.udp6("1500 bytes", 1500, 64, nil, 0, 1), m.udp6("1501 bytes", 1501, 64, nil, 0, 1),
			m.udp6("4000 bytes", 4000, 64, nil, 0, 1), m.udp6("9000 bytes", farMTU, 64, nil, 0, 1),
		})
	}
	trials["jumbo-mtu"] = func(m *trial) string { return m.like(farMTU, 1500, m.lengths(1500, farMTU)) }
	trials["lb-mtu"] = lbMTU
}

// corner is a packet with what has to come of it: so many frames out of the card that it came in by, which are answers, and out of the
// other one.
type corner struct {
	name        string
	frame       []byte
	answers, on int
	// kernel says that culvert leaves it to the kernel.
	kernel bool
}

// ip6 returns an IPv6 address in the port's network, as ip4 does.
func (p *port) ip6(host byte) net.IP { return net.IP{0xfd, 0, 0, byte(p.number), 15: host} }

// beyond6 is an IPv6 address behind the host at the far end.
func (p *port) beyond6() net.IP { return net.IP{0xfd, 1, 0, byte(p.number), 15: 7} }

// lengths has packets that fit an MTU and longer ones, of both families, with and without leave to fragment.
func (m *trial) lengths(mtu, most int) []corner {
	longs := []int{mtu + 1, most}
	all := []corner{m.udp4("fits", mtu, 64, true, 0, 1), m.udp6("fits", mtu, 64, nil, 0, 1), m.udp4("fits, no DF", mtu, 64, false, 0, 1)}
	for _, n := range longs {
		fragments := (n - 20 + (mtu-20)/8*8 - 1) / ((mtu - 20) / 8 * 8)
		all = append(all, m.udp4("DF", n, 64, true, 1, 0), m.udp4("no DF", n, 64, false, 0, fragments), m.udp6("IPv6", n, 64, nil, 1, 0),
			m.udp4("DF and TTL 1", n, 1, true, 1, 0), m.udp6("hop limit 1", n, 1, nil, 1, 0),
			m.udp6("hop-by-hop options", n, 64, padded(layers.IPProtocolIPv6HopByHop), 1, 0))
	}
	return all
}

// corners6 has IPv6 packets with hop limits and extension headers.
func (m *trial) corners6() []corner {
	return []corner{
		m.udp6("plain", 100, 64, nil, 0, 1), m.udp6("1500 bytes", 1500, 64, nil, 0, 1), m.udp6("hop limit 2", 100, 2, nil, 0, 1),
		m.udp6("hop limit 1", 100, 1, nil, 1, 0), m.udp6("hop limit 1, long", 1500, 1, nil, 1, 0),
		m.udp6("hop-by-hop options", 200, 64, padded(layers.IPProtocolIPv6HopByHop), 0, 1),
		m.udp6("hop-by-hop options, hop limit 1", 200, 1, padded(layers.IPProtocolIPv6HopByHop), 1, 0),
		m.udp6("hop-by-hop option that nobody knows", 200, 64, &extension{layers.IPProtocolIPv6HopByHop, []byte{0x9e, 4, 0, 0, 0, 0}}, 1, 0),
		m.udp6("destination options", 200, 64, padded(layers.IPProtocolIPv6Destination), 0, 1),
		m.udp6("the only fragment", 200, 64, &extension{layers.IPProtocolIPv6Fragment, []byte{0, 0, 0, 0, 0, 7}}, 0, 1),
		m.udp6("the first fragment", 200, 64, &extension{layers.IPProtocolIPv6Fragment, []byte{0, 1, 0, 0, 0, 8}}, 0, 1),
	}
}

// extension is an IPv6 extension header of 8 bytes: all but the first two.
type extension struct {
	kind  layers.IPProtocol
	value []byte
}

// padded is an extension header with nothing but padding.
func padded(kind layers.IPProtocol) *extension { return &extension{kind, []byte{1, 4, 0, 0, 0, 0}} }

// udp4 makes a packet of so many bytes from the far end of the port that it comes in by to the other one.
func (m *trial) udp4(name string, size int, ttl uint8, df bool, answers, on int) corner {
	m.Helper()
	ip := &layers.IPv4{Version: 4, TTL: ttl, Id: uint16(size), Protocol: layers.IPProtocolUDP, SrcIP: m.in.ip4(2), DstIP: m.out.beyond4()}
	if df {
		ip.Flags = layers.IPv4DontFragment
	}
	frame := m.serialize(layers.EthernetTypeIPv4, ip, ip, size-28)
	return corner{fmt.Sprintf("IPv4, %d bytes, %s", size, name), frame, answers, on, answers > 0 || on != 1}
}

// udp6 does so with IPv6.
func (m *trial) udp6(name string, size int, hops uint8, e *extension, answers, on int) corner {
	m.Helper()
	ip := &layers.IPv6{Version: 6, HopLimit: hops, NextHeader: layers.IPProtocolUDP, SrcIP: m.in.ip6(2), DstIP: m.out.beyond6()}
	rest := size - 48
	if e != nil {
		rest -= 8
	}
	frame := m.serialize(layers.EthernetTypeIPv6, ip, ip, rest)
	if e != nil {
		const header = 14 + 40
		frame = slices.Insert(frame, header, append([]byte{unix.IPPROTO_UDP, 0}, e.value...)...)
		frame[14+6] = byte(e.kind)
		binary.BigEndian.PutUint16(frame[14+4:], uint16(size-40))
	}
	return corner{fmt.Sprintf("IPv6, %d bytes, %s", size, name), frame, answers, on, answers > 0 || e != nil}
}

func (m *trial) serialize(kind layers.EthernetType, ip gopacket.SerializableLayer, network gopacket.NetworkLayer, payload int) []byte {
	m.Helper()
	eth := &layers.Ethernet{SrcMAC: m.in.hop(), DstMAC: m.in.mac, EthernetType: kind}
	udp := &layers.UDP{SrcPort: 4000, DstPort: 5000}
	data := make([]byte, payload)
	for n := range data {
		data[n] = byte(n * 7)
	}
	b := gopacket.NewSerializeBuffer()
	if err := errors.Join(udp.SetNetworkLayerForChecksum(network), gopacket.SerializeLayers(b,
		gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, udp, gopacket.Payload(data))); err != nil {
		m.Fatal(err)
	}
	return slices.Clone(b.Bytes())
}

// like sends packets through culvert and then through the kernel alone, with an MTU for the card that they come in by and one for the other
// card. It compares what comes out.
func (m *trial) like(in, out int, all []corner) string {
	m.Helper()
	m.detach(m.T)
	setMTU := func(p *port, n int) error {
		return m.link(p, func(l netlink.Link) error { return netlink.LinkSetMTU(l, n) })
	}
	defer func() {
		m.detach(m.T)
		if err := errors.Join(m.ipv6(false), setMTU(m.in, 1500), setMTU(m.out, 1500)); err != nil {
			m.Error(err)
		}
	}()
	if err := errors.Join(setMTU(m.in, in), setMTU(m.out, in)); err != nil {
		m.Logf("MTU %d: %v", in, err)
		return "no such MTU"
	}
	if err := m.ipv6(true); err != nil {
		m.Fatal(err)
	}
	received := m.receives(in)
	if err := setMTU(m.out, out); err != nil {
		m.Fatal(err)
	}
	m.ready(m.in, m.out) // a card begins anew with another MTU, and after an attach nobody follows its link
	if text, err := m.culvert("attach", "-c", file(m.T, config(m.mode, m.in, m.out))); err != nil {
		if max(in, out) <= 1500 || !strings.Contains(text, "MTU") {
			m.Errorf("attach: %v: %s", err, text)
		}
		return "refused" // the row about jumbo frames has the command that mends it
	}
	if !received {
		return "no such MTU"
	}
	before := m.counted(m.T, m.in)
	with := m.run2(all)
	counted := m.settle(m.in, before, uint64(len(all)))
	m.detach(m.T)
	alone := m.run2(all)
	for n, side := range []string{"back", "on"} {
		slices.Sort(with[n])
		slices.Sort(alone[n])
		if !slices.Equal(with[n], alone[n]) {
			m.Errorf("frames that went %s: with culvert\n%s\nand the kernel alone\n%s", side, strings.Join(with[n], "\n"), strings.Join(alone[n], "\n"))
		}
	}
	kernel := uint64(0)
	for _, c := range all {
		if c.kernel {
			kernel++
		}
	}
	fwd, left := counted.sum("fwd"), counted.sum("pass")+counted.sum("punt")
	m.Logf("%d packets: %v", len(all), counted)
	if fwd+left != uint64(len(all)) || counted.sum("lost") > 0 {
		m.Errorf("%d packets were sent, and counted are %v", len(all), counted)
	}
	switch {
	case left == kernel:
		return "yes"
	case left > kernel && max(in, out) > 1500:
		return "kernel"
	}
	m.Errorf("%d packets were left to the kernel, want %d: %v", left, kernel, counted)
	return "no"
}

// receives tells whether a card receives packets as long as its MTU, without culvert: the emulated vmxnet3 loses those, with the driver of either
// Linux. A short packet of the same flow comes behind the long one.
func (m *trial) receives(mtu int) bool {
	m.Helper()
	m.ready(m.in, m.out)
	m.bed.out[m.out].forget()
	for _, c := range []corner{m.udp4("long", mtu, 64, true, 0, 1), m.udp4("short", 100, 64, true, 0, 1)} {
		if err := m.in.far.Send(c.frame); err != nil {
			m.Fatalf("send %s: %v", c.name, err)
		}
	}
	on := func() [][]byte { return m.bed.out[m.out].of(m.about(26)) }
	short := func(f []byte) bool { return len(f) == 14+100 }
	if !wait(func() bool { return slices.ContainsFunc(on(), short) }) {
		m.Error("the kernel alone does not forward")
	}
	return len(on()) == 2
}

// run2 sends packets one by one, and returns what has gone back and on, in hexadecimal.
func (m *trial) run2(all []corner) (went [2][]string) {
	m.Helper()
	m.ready(m.in, m.out)
	m.bed.out[m.in].forget()
	m.bed.out[m.out].forget()
	hear := func() (back, on [][]byte) {
		return m.bed.out[m.in].of(m.about(30)), m.bed.out[m.out].of(m.about(26))
	}
	wantBack, wantOn := 0, 0
	for _, c := range all {
		if err := m.in.far.Send(c.frame); err != nil {
			m.Fatalf("send %s: %v", c.name, err)
		}
		wantBack, wantOn = wantBack+c.answers, wantOn+c.on
		if !wait(func() bool { back, on := hear(); return len(back) >= wantBack && len(on) >= wantOn }) {
			back, on := hear()
			m.Errorf("%s: %d frames went back and %d on so far, want %d and %d", c.name, len(back), len(on), wantBack, wantOn)
			break
		}
	}
	time.Sleep(200 * time.Millisecond)
	back, on := hear()
	if len(back) != wantBack || len(on) != wantOn {
		m.Errorf("%d frames went back and %d on, want %d and %d", len(back), len(on), wantBack, wantOn)
	}
	for _, f := range back {
		went[0] = append(went[0], fmt.Sprintf("%x", settled(f)))
	}
	for _, f := range on {
		went[1] = append(went[1], fmt.Sprintf("%x", f))
	}
	return went
}

// about tells whether the host at the far end of the port that packets come in by is in a frame as source or as destination: its IPv4
// address is at an offset, and its IPv6 address at the one that the same address has there.
func (m *trial) about(at4 int) func([]byte) bool {
	at6 := map[int]int{26: 22, 30: 38}[at4]
	four, six := string(m.in.ip4(2)), string(m.in.ip6(2))
	return func(f []byte) bool {
		switch {
		case len(f) >= 34 && binary.BigEndian.Uint16(f[12:]) == unix.ETH_P_IP:
			return string(f[at4:at4+4]) == four
		case len(f) >= 54 && binary.BigEndian.Uint16(f[12:]) == unix.ETH_P_IPV6:
			return string(f[at6:at6+16]) == six
		}
		return false
	}
}

// settled returns an answer of the kernel without what differs each time: the ID of IPv4, and the flow label of IPv6.
func settled(f []byte) []byte {
	f = slices.Clone(f)
	if binary.BigEndian.Uint16(f[12:]) == unix.ETH_P_IP {
		f[18], f[19], f[24], f[25] = 0, 0, 0, 0
	} else {
		f[15], f[16], f[17] = f[15]&0xf0, 0, 0
	}
	return f
}

// ipv6 switches IPv6 on or off for both ports.
func (m *trial) ipv6(on bool) error {
	off := "1"
	if on {
		off = "0"
	}
	return m.here.Do(func() error {
		err := errors.Join(testbed.WriteSysctl("ipv6/conf/all/forwarding", "1"), testbed.WriteSysctl("ipv6/icmp/ratelimit", "0"))
		for _, p := range []*port{m.in, m.out} {
			err = errors.Join(err, testbed.WriteSysctl("ipv6/conf/"+p.name+"/disable_ipv6", off))
			if on {
				err = errors.Join(err, p.join6())
			}
		}
		return err
	})
}

// join6 does for IPv6 what join does.
func (p *port) join6() error {
	l, err := netlink.LinkByName(p.name)
	if err != nil {
		return err
	}
	prefix := net.CIDRMask(64, 128)
	if err := netlink.AddrReplace(l, &netlink.Addr{IPNet: &net.IPNet{IP: p.ip6(1), Mask: prefix}, Flags: unix.IFA_F_NODAD}); err != nil {
		return err
	}
	if err := netlink.NeighSet(&netlink.Neigh{
		LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: p.ip6(2), HardwareAddr: p.hop(),
	}); err != nil {
		return err
	}
	return netlink.RouteReplace(&netlink.Route{Dst: &net.IPNet{IP: p.beyond6().Mask(prefix), Mask: prefix}, Gw: p.ip6(2)})
}

// lbMTU has a backend behind a card with a smaller MTU than the clients' one. What does not fit with its outer header is answered with the
// length that does.
func lbMTU(m *trial) string {
	const small, outer = 1400, 20
	mtu := func(n int) func(netlink.Link) error {
		return func(l netlink.Link) error { return netlink.LinkSetMTU(l, n) }
	}
	m.detach(m.T)
	m.mustLink(m.out, mtu(small))
	defer func() {
		m.detach(m.T)
		m.mustLink(m.out, mtu(1500))
	}()
	m.attachBoth()
	toVIP := func(size int) []packet {
		return each(to(m.in, net.ParseIP(vip).To4(), 8), func(p *packet) { p.dport, p.size = 80, 14+size })
	}
	if s := m.send(toVIP(small-outer), m.in, m.out); s.check(m) != "yes" {
		m.Errorf("packets that just fit: %v", s.counts)
	}
	m.bed.out[m.out].forget()
	s := m.send(toVIP(small-outer+1), m.in, m.in)
	if n := len(m.bed.out[m.out].of(marked)); n != 0 {
		m.Errorf("%d packets that do not fit have arrived", n)
	}
	if len(s.arrived) != len(s.packets) || s.counts["fwd lb-too-big"] != uint64(len(s.packets)) {
		m.Errorf("%d answers to %d packets, counted are %v", len(s.arrived), len(s.packets), s.counts)
	}
	for _, f := range s.arrived {
		if !icmp(3)(f) || f[35] != 4 || binary.BigEndian.Uint16(f[40:]) != small-outer {
			m.Errorf("not an answer with MTU %d: %x", small-outer, f[:60])
			break
		}
	}
	return "yes"
}
