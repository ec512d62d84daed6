// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"culvert/internal/bpfobj"
	"culvert/internal/testbed"
)

var (
	synFrom4 = netip.MustParseAddrPort("198.51.100.7:40000")
	synFrom6 = netip.MustParseAddrPort("[2001:db8:77::7]:40000")
)

// synStage is a protected service of one family, and a client's address.
type synStage struct {
	*synFilter
	to, from netip.AddrPort
}

// newSynStage protects a service on port 80 and a forwarded one on port 443, in each family. Timestamps is the sysctl
// tcp_timestamps.
func newSynStage(t *testing.T, timestamps string) (v4, v6 synStage) {
	t.Helper()
	testbed.InNamespace(t)
	in := testbed.AddVeth(t, "in", "inp")
	testbed.Sysctl(t, "ipv4/tcp_syncookies", "2")
	testbed.Sysctl(t, "ipv4/tcp_timestamps", timestamps)
	testbed.StartWebServer(t, netip.MustParseAddrPort("0.0.0.0:80"))
	testbed.StartWebServer(t, netip.MustParseAddrPort("[::]:80"))
	to4, to6 := netip.AddrPortFrom(synAddr4, 80), netip.AddrPortFrom(synAddr6, 80)
	f := loadSynFilter(t, in,
		Service{Addr: to4}, Service{Addr: to6},
		Service{Addr: netip.AddrPortFrom(synAddr4, 81)}, // nobody listens
		Service{Addr: netip.AddrPortFrom(synAddr4, 443), Forwarded: true},
		Service{Addr: netip.AddrPortFrom(synAddr6, 443), Forwarded: true, MSS: 1400, WindowScale: 9})
	return synStage{f, to4, synFrom4}, synStage{f, to6, synFrom6}
}

// frame returns a SYN to the service, with a change if it is not nil.
func (s synStage) frame(change func(*synFrame)) synFrame {
	f := synFrame{dstMAC: s.iface.HardwareAddr, src: s.from, dst: s.to, flags: tcpSYN, seq: 0xfffffff0, opts: linuxOptions(77)}
	if change != nil {
		change(&f)
	}
	return f
}

// answer returns the filter's answer to a SYN.
func (s synStage) answer(t *testing.T, f synFrame) synAnswer {
	t.Helper()
	action, out := s.run(t, f.build())
	if action != testbed.XDPTX {
		t.Fatalf("action %d, not an answer", action)
	}
	return readAnswer(t, f, out)
}

func mss(n uint16) []byte { return []byte{2, 4, byte(n >> 8), byte(n)} }

// TestFilterSynAnswer checks the fields and options of answers, with each setting of tcp_timestamps. Only with 2, without an
// offset, an answer has a time stamp, and options that need one.
func TestFilterSynAnswer(t *testing.T) {
	ts := []byte{8, 10, 0, 0, 0, 77, 0, 0, 0, 0}
	cases := []struct {
		name   string
		change func(*synFrame)
		// The options of the answer with tcp_timestamps = 2, and the low bits of its time stamp.
		ts, sack, wscale bool
		bits             uint32
	}{
		{"as linux sends it", nil, true, true, true, 0x17},
		{"no options", func(f *synFrame) { f.opts = nil }, false, false, false, 0},
		{"mss alone", func(f *synFrame) { f.opts = mss(1400) }, false, false, false, 0},
		{"no timestamps", func(f *synFrame) { f.opts = append(mss(1460), 4, 2, 1, 3, 3, 9, 1, 1) }, false, false, false, 0},
		{"timestamps alone", func(f *synFrame) { f.opts = append([]byte{1, 1}, ts...) }, true, false, false, 0xf},
		{"timestamps and sack", func(f *synFrame) { f.opts = append([]byte{4, 2}, ts...) }, true, true, false, 0x1f},
		{"timestamps and scale 0", func(f *synFrame) { f.opts = append([]byte{3, 3, 0, 1, 1, 1}, ts...) }, true, false, true, 0},
		{"scale above 14", func(f *synFrame) { f.opts = append([]byte{3, 3, 200, 1, 1, 1}, ts...) }, true, false, true, 14},
		{"options after the end", func(f *synFrame) { f.opts = append([]byte{0, 1}, ts...) }, false, false, false, 0},
		{"length 0 in the options", func(f *synFrame) { f.opts = append(append(mss(1460), 30, 0), ts...) }, false, false, false, 0},
		{"length 1 in the options", func(f *synFrame) { f.opts = append(append(mss(1460), 30, 1), ts...) }, false, false, false, 0},
		{"option past the header", func(f *synFrame) { f.opts = []byte{1, 1, 8, 10} }, false, false, false, 0},
		{"kind at the last byte", func(f *synFrame) { f.opts = []byte{1, 1, 1, 8} }, false, false, false, 0},
		{"lengths that options do not have", func(f *synFrame) { f.opts = []byte{2, 3, 5, 8, 9, 0, 0, 0, 1, 0, 0, 0, 4, 3, 0, 3} }, false, false, false, 0},
		{"forty nops", func(f *synFrame) { f.opts = bytes.Repeat([]byte{1}, 40) }, false, false, false, 0},
		{"forty bytes of options", func(f *synFrame) { f.opts = append(bytes.Repeat([]byte{1}, 30), ts...) }, true, false, false, 0xf},
		{"unknown option", func(f *synFrame) { f.opts = append([]byte{254, 6, 1, 2, 3, 4}, ts...) }, true, false, false, 0xf},
		{"explicit congestion notification", func(f *synFrame) { f.flags |= tcpECE | tcpCWR }, true, true, true, 0x17},
		{"push and urgent", func(f *synFrame) { f.flags |= tcpPSH | 0x20 }, true, true, true, 0x17},
		{"a tag", func(f *synFrame) { f.tags = []uint16{0x6064} }, true, true, true, 0x17},
		{"two tags, no timestamps", func(f *synFrame) { f.tags, f.opts = []uint16{7, 8}, mss(1460) }, false, false, false, 0},
		{"sequence number at its end", func(f *synFrame) { f.seq = 0xffffffff }, true, true, true, 0x17},
	}
	for _, timestamps := range []string{"0", "1", "2"} {
		t.Run("timestamps "+timestamps, func(t *testing.T) {
			v4, v6 := newSynStage(t, timestamps)
			for _, stage := range []synStage{v4, v6} {
				for _, c := range cases {
					f := stage.frame(c.change)
					a := stage.answer(t, f)
					on := timestamps == "2"
					mss := uint16(1460)
					if stage.to.Addr().Is6() {
						mss = 1440
					}
					if a.mss != mss || a.window != 29200 {
						t.Errorf("%s: %s: mss %d, window %d", stage.to, c.name, a.mss, a.window)
					}
					scales := c.wscale && on && rmemMax() != 0
					if a.ts != (c.ts && on) || a.sack != (c.sack && on) || (a.wscale >= 0) != scales {
						t.Errorf("%s: %s: %+v", stage.to, c.name, a)
					}
					if bits := c.bits | map[bool]uint32{true: 0xf}[!scales]; a.ts && (a.echo != 77 || a.tsval&0x3f != bits) {
						t.Errorf("%s: %s: timestamp %x, echo %d: bits are not %x", stage.to, c.name, a.tsval, a.echo, bits)
					}
				}
			}
		})
	}
}

// TestFilterSynCookie sends an ACK with the cookie of an answer, and other packets. Only the cookie passes, if its connection is
// that of the answer. The kernel takes four numbers in a row for cookies, one for each MSS that it knows.
func TestFilterSynCookie(t *testing.T) {
	v4, v6 := newSynStage(t, "1")
	for _, s := range []synStage{v4, v6} {
		a := s.answer(t, s.frame(nil))
		ack := func(change func(*synFrame)) synFrame {
			return s.frame(func(f *synFrame) {
				f.flags, f.seq, f.ack, f.opts = tcpACK, f.seq+1, a.cookie+1, nil
				if change != nil {
					change(f)
				}
			})
		}
		other := s.from.Addr().Next()
		cases := []struct {
			name   string
			change func(*synFrame)
			action uint32
		}{
			{"the cookie", nil, testbed.XDPPass},
			{"with data", func(f *synFrame) { f.flags |= tcpPSH; f.data = []byte("GET /") }, testbed.XDPPass},
			{"with options", func(f *synFrame) { f.opts = linuxOptions(78)[4:] }, testbed.XDPPass},
			{"with a tag", func(f *synFrame) { f.tags = []uint16{5} }, testbed.XDPPass},
			{"and the end of the connection", func(f *synFrame) { f.flags |= tcpFIN }, testbed.XDPPass},
			{"eight numbers further", func(f *synFrame) { f.ack += 8 }, testbed.XDPDrop},
			{"another minute's", func(f *synFrame) { f.ack += 5 << 24 }, testbed.XDPDrop},
			{"another sequence number", func(f *synFrame) { f.seq += 8 }, testbed.XDPDrop},
			{"from another address", func(f *synFrame) { f.src = netip.AddrPortFrom(other, f.src.Port()) }, testbed.XDPDrop},
			{"from another port", func(f *synFrame) { f.src = netip.AddrPortFrom(f.src.Addr(), f.src.Port()+1) }, testbed.XDPDrop},
			{"no cookie", func(f *synFrame) { f.ack = 0 }, testbed.XDPDrop},
			{"of another's SYN-ACK", func(f *synFrame) { f.flags |= tcpSYN }, testbed.XDPDrop},
			{"a reset", func(f *synFrame) { f.flags |= tcpRST }, testbed.XDPDrop},
			{"no flags", func(f *synFrame) { f.flags = 0 }, testbed.XDPDrop},
			{"the end alone", func(f *synFrame) { f.flags = tcpFIN }, testbed.XDPDrop},
			{"a SYN that is an end", func(f *synFrame) { f.flags = tcpSYN | tcpFIN }, testbed.XDPDrop},
			{"a SYN that is a reset", func(f *synFrame) { f.flags = tcpSYN | tcpRST }, testbed.XDPDrop},
			{"to a port that is not protected", func(f *synFrame) { f.ack, f.dst = 1, netip.AddrPortFrom(f.dst.Addr(), 8080) }, testbed.XDPPass},
			{"to an address that is not protected", func(f *synFrame) { f.ack, f.dst = 1, netip.AddrPortFrom(f.dst.Addr().Next(), 80) }, testbed.XDPPass},
			{"to another host's MAC", func(f *synFrame) { f.ack, f.dstMAC = 1, synClientMAC }, testbed.XDPPass},
		}
		for _, c := range cases {
			before := s.counted(t, bpfobj.PipelineReasonDROP_FILTER_COOKIE)
			action, _ := s.run(t, ack(c.change).build())
			if action != c.action {
				t.Errorf("%s: %s: action %d, not %d", s.to, c.name, action, c.action)
			}
			if n := s.counted(t, bpfobj.PipelineReasonDROP_FILTER_COOKIE) - before; n != map[bool]uint64{true: 1}[c.action == testbed.XDPDrop] {
				t.Errorf("%s: %s: %d counted as dropped", s.to, c.name, n)
			}
		}
	}
}

// fixIPv4Sum sets the checksum of an IPv4 header.
func fixIPv4Sum(header []byte) {
	binary.BigEndian.PutUint16(header[10:], 0)
	binary.BigEndian.PutUint16(header[10:], ^onesComplement(header, 0))
}

// TestFilterSynGoesOn sends SYNs that the filter does not answer. They go on to the kernel unchanged.
func TestFilterSynGoesOn(t *testing.T) {
	v4, v6 := newSynStage(t, "2")
	cases := []struct {
		name   string
		v4, v6 bool
		change func(*synFrame)
	}{
		{"another port", true, true, func(f *synFrame) { f.dst = netip.AddrPortFrom(f.dst.Addr(), 8080) }},
		{"another address", true, true, func(f *synFrame) { f.dst = netip.AddrPortFrom(f.dst.Addr().Next(), 80) }},
		{"nobody listens", true, false, func(f *synFrame) { f.dst = netip.AddrPortFrom(f.dst.Addr(), 81) }},
		{"another host's MAC", true, true, func(f *synFrame) { f.dstMAC = synClientMAC }},
		{"broadcast MAC", true, true, func(f *synFrame) { f.dstMAC = bytes.Repeat([]byte{0xff}, 6) }},
		{"UDP", true, false, func(f *synFrame) {
			f.mangle = func(b []byte, l3, l4 int) {
				b[l3+9] = 17
				fixIPv4Sum(b[l3:l4])
			}
		}},
		{"TCP checksum", true, true, func(f *synFrame) { f.mangle = func(b []byte, _, l4 int) { b[l4+16] ^= 1 } }},
		{"a bit of the options", true, true, func(f *synFrame) { f.mangle = func(b []byte, _, l4 int) { b[l4+33] ^= 0x80 } }},
		{"IPv4 checksum", true, false, func(f *synFrame) { f.mangle = func(b []byte, l3, _ int) { b[l3+10] ^= 1 } }},
		{"IPv4 options", true, false, func(f *synFrame) { f.ipOpts = []byte{1, 1, 1, 0} }},
		{"hop-by-hop options", false, true, func(f *synFrame) { f.ext = []byte{0, 1, 4, 0, 0, 0, 0} }},
		{"first fragment", true, false, func(f *synFrame) {
			f.mangle = func(b []byte, l3, l4 int) {
				b[l3+6] = 0x20
				fixIPv4Sum(b[l3:l4])
			}
		}},
		{"second fragment", true, false, func(f *synFrame) {
			f.mangle = func(b []byte, l3, l4 int) {
				b[l3+7] = 3
				fixIPv4Sum(b[l3:l4])
			}
		}},
		{"header longer than the packet", true, true, func(f *synFrame) { f.mangle = func(b []byte, _, l4 int) { b[l4+12] = 0xf0 } }},
		{"header shorter than a header", true, true, func(f *synFrame) { f.mangle = func(b []byte, _, l4 int) { b[l4+12] = 0x40 } }},
		{"data", true, true, func(f *synFrame) { f.data = []byte("early") }},
		{"MD5 signature", true, true, func(f *synFrame) { f.opts = append([]byte{1, 1, 19, 18}, make([]byte, 16)...) }},
		{"authentication option", true, true, func(f *synFrame) { f.opts = append([]byte{29, 16}, make([]byte, 18)...) }},
		{"land", true, true, func(f *synFrame) { f.src = netip.AddrPortFrom(f.dst.Addr(), f.src.Port()) }},
		{"from loopback", true, false, func(f *synFrame) { f.src = netip.MustParseAddrPort("127.0.0.1:4000") }},
		{"from this network", true, false, func(f *synFrame) { f.src = netip.MustParseAddrPort("0.0.0.0:4000") }},
		{"from multicast", true, false, func(f *synFrame) { f.src = netip.MustParseAddrPort("224.0.0.5:4000") }},
		{"from broadcast", true, false, func(f *synFrame) { f.src = netip.MustParseAddrPort("255.255.255.255:4000") }},
		{"from loopback", false, true, func(f *synFrame) { f.src = netip.MustParseAddrPort("[::1]:4000") }},
		{"from nowhere", false, true, func(f *synFrame) { f.src = netip.MustParseAddrPort("[::]:4000") }},
		{"from multicast", false, true, func(f *synFrame) { f.src = netip.MustParseAddrPort("[ff02::1]:4000") }},
		{"from a mapped address", false, true, func(f *synFrame) { f.src = netip.MustParseAddrPort("[::ffff:192.0.2.9]:4000") }},
		{"three tags", true, true, func(f *synFrame) { f.tags = []uint16{1, 2, 3} }},
		{"an IPv4 service in an IPv6 address", false, true, func(f *synFrame) { f.dst = netip.MustParseAddrPort("[::ffff:192.0.2.1]:80") }},
	}
	for _, s := range []synStage{v4, v6} {
		for _, c := range cases {
			if s.to.Addr().Is4() && !c.v4 || s.to.Addr().Is6() && !c.v6 {
				continue
			}
			frame := s.frame(c.change).build()
			action, out := s.run(t, frame)
			if action != testbed.XDPPass {
				t.Errorf("%s: %s: action %d", s.to, c.name, action)
			}
			if !bytes.HasPrefix(out, frame) {
				t.Errorf("%s: %s: the packet has changed", s.to, c.name)
			}
		}
		// A SYN truncated at each byte goes on too.
		whole := s.frame(nil).build()
		for n := 14; n < len(whole); n++ {
			if action, _ := s.runShort(t, whole[:n]); action != testbed.XDPPass {
				t.Errorf("%s: %d of %d bytes: action %d", s.to, n, len(whole), action)
			}
		}
	}
	if n := v4.counted(t, bpfobj.PipelineReasonXMIT_FILTER_SYNACK); n != 0 {
		t.Errorf("%d answered", n)
	}
}

// TestFilterSynPassesThrough has a service that listens on all addresses. Packets that the kernel would forward go on to it.
// While it forwards nothing, packets to other addresses are answered, because no other host could get them.
func TestFilterSynPassesThrough(t *testing.T) {
	testbed.InNamespace(t)
	in := testbed.AddVeth(t, "in", "inp")
	testbed.AddVeth(t, "back", "web")
	for name, addrs := range map[string][]string{
		"in":   {synAddr4.String() + "/24", synAddr6.String() + "/64"},
		"back": {"203.0.113.1/24", "2001:db8:2::1/64"},
	} {
		if err := testbed.PrepareEnd(name, addrs...); err != nil {
			t.Fatal(err)
		}
	}
	testbed.Sysctl(t, "ipv4/tcp_syncookies", "2")
	testbed.StartWebServer(t, netip.MustParseAddrPort("0.0.0.0:80"))
	testbed.StartWebServer(t, netip.MustParseAddrPort("[::]:80"))
	command(t, "", "ip", "route", "add", "local", "198.51.100.9/32", "dev", "lo")
	command(t, "", "ip", "route", "add", "blackhole", "198.51.100.10/32")
	addresses := []struct {
		name, addr string
		forwarded  bool // by the kernel, if forwarding is on
	}{
		{"its own", synAddr4.String(), false},
		{"its own, IPv6", synAddr6.String(), false},
		{"its own on another interface", "203.0.113.1", false},
		{"its own by a route", "198.51.100.9", false},
		{"a blackhole", "198.51.100.10", true},
		{"another host", webAddr4.String(), true},
		{"another host, IPv6", webAddr6.String(), true},
		{"no route", "198.18.0.1", false},
	}
	var services []Service
	for _, a := range addresses {
		services = append(services, Service{Addr: netip.AddrPortFrom(netip.MustParseAddr(a.addr), 80)})
	}
	f := loadSynFilter(t, in, services...)
	for _, forwarding := range []string{"0", "1"} {
		testbed.Sysctl(t, "ipv4/ip_forward", forwarding)
		testbed.Sysctl(t, "ipv6/conf/all/forwarding", forwarding)
		for n, a := range addresses {
			s := synStage{f, services[n].Addr, synFrom4}
			if s.to.Addr().Is6() {
				s.from = synFrom6
			}
			syn, ack := uint32(testbed.XDPTX), uint32(testbed.XDPDrop)
			if a.forwarded && forwarding == "1" {
				syn, ack = testbed.XDPPass, testbed.XDPPass
			}
			for _, c := range []struct {
				name   string
				flags  byte
				action uint32
			}{{"SYN", tcpSYN, syn}, {"ACK", tcpACK, ack}} {
				action, _ := s.run(t, s.frame(func(f *synFrame) { f.flags, f.ack = c.flags, 1 }).build())
				if action != c.action {
					t.Errorf("forwarding %s: %s: %s: action %d, not %d", forwarding, a.name, c.name, action, c.action)
				}
			}
		}
	}
}

// TestFilterSynCookiesOff turns cookies off in the kernel. The filter then lets all packets go on.
func TestFilterSynCookiesOff(t *testing.T) {
	v4, _ := newSynStage(t, "2")
	testbed.Sysctl(t, "ipv4/tcp_syncookies", "0")
	for name, change := range map[string]func(*synFrame){
		"SYN": nil,
		"ACK": func(f *synFrame) { f.flags, f.ack = tcpACK, 1 },
	} {
		if action, _ := v4.run(t, v4.frame(change).build()); action != testbed.XDPPass {
			t.Errorf("%s: action %d", name, action)
		}
	}
	// With 1 the kernel makes cookies only when the listener's queue is full.
	testbed.Sysctl(t, "ipv4/tcp_syncookies", "1")
	if action, _ := v4.run(t, v4.frame(nil).build()); action != testbed.XDPPass {
		t.Errorf("on demand: action %d", action)
	}
}

// TestFilterSynForwarded checks that answers for a forwarded service announce the same as its SYNPROXY rule.
func TestFilterSynForwarded(t *testing.T) {
	v4, v6 := newSynStage(t, "1")
	testbed.Sysctl(t, "ipv4/tcp_syncookies", "0") // has no effect on forwarded services
	for _, s := range []synStage{v4, v6} {
		s.to = netip.AddrPortFrom(s.to.Addr(), 443)
		mss, wscale := uint16(1460), 7
		if s.to.Addr().Is6() {
			mss, wscale = 1400, 9
		}
		a := s.answer(t, s.frame(nil))
		if a.mss != mss || a.wscale != wscale || a.window != 0 || !a.ts || !a.sack || a.echo != 77 || a.tsval&0x3f != 0x17 {
			t.Errorf("%s: %+v", s.to, a)
		}
		a = s.answer(t, s.frame(func(f *synFrame) { f.opts = linuxOptions(0)[:4] }))
		if a.mss != mss || a.wscale != -1 || a.window != 0 || a.ts || a.sack {
			t.Errorf("%s: without timestamps: %+v", s.to, a)
		}
		for name, flags := range map[string]byte{"ACK": tcpACK, "RST": tcpRST, "SYN-ACK": tcpSYN | tcpACK, "SYN and FIN": tcpSYN | tcpFIN} {
			if action, _ := s.run(t, s.frame(func(f *synFrame) { f.flags = flags }).build()); action != testbed.XDPPass {
				t.Errorf("%s: %s: action %d", s.to, name, action)
			}
		}
	}
}

func TestFilterServiceRefused(t *testing.T) {
	good := Service{Addr: netip.MustParseAddrPort("192.0.2.1:80")}
	at := func(addr string) Service { return Service{Addr: netip.MustParseAddrPort(addr)} }
	for _, tt := range []struct {
		name     string
		services []Service
		want     string
	}{
		{"no address", []Service{{}}, "service invalid AddrPort: needs an address and a port, as in 192.0.2.1:80"},
		{"no port", []Service{at("192.0.2.1:0")}, "service 192.0.2.1:0: needs an address and a port, as in 192.0.2.1:80"},
		{"a zone", []Service{at("[fe80::1%eth0]:80")}, "service [fe80::1%eth0]:80: leave the zone out"},
		{
			"all addresses", []Service{good, at("0.0.0.0:80")},
			"service 0.0.0.0:80: name each address of its own, packets to other hosts would be answered too",
		},
		{"multicast", []Service{at("[ff02::1]:80")}, "service [ff02::1]:80: not an address that TCP comes in for"},
		{"a small MSS", []Service{{Addr: good.Addr, MSS: 535}}, "service 192.0.2.1:80: mss 535 is below 536"},
		{
			"a large window scale", []Service{{Addr: good.Addr, Forwarded: true, WindowScale: 15}},
			"service 192.0.2.1:80: window scale 15 is above 14",
		},
		{
			"a window scale of a service on this host", []Service{{Addr: good.Addr, WindowScale: 7}},
			"service 192.0.2.1:80: the window scale of a service on this host is the kernel's: leave it out",
		},
		{"the same address twice", []Service{good, at("[::ffff:192.0.2.1]:80")}, "service 192.0.2.1:80: named twice"},
	} {
		if err := checkServices(tt.services); err == nil || err.Error() != tt.want {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
	if err := checkServices([]Service{good}); err != nil {
		t.Error(err)
	}
}

// TestPutFilterServices adds services to the map of protected services, and deletes one.
func TestPutFilterServices(t *testing.T) {
	v4, v6 := newSynStage(t, "1")
	m, list := v4.maps[bpfobj.FilterMapFilterServices], []Service{{Addr: netip.AddrPortFrom(v6.to.Addr(), 80)}}
	if err := putServices(m, list); err != nil {
		t.Fatal(err)
	}
	v4.answer(t, v4.frame(nil)) // still there
	if err := m.Delete(serviceKey(Service{Addr: v4.to})); err != nil {
		t.Fatal(err)
	}
	if action, _ := v4.run(t, v4.frame(nil).build()); action != testbed.XDPPass {
		t.Errorf("a service that is gone: action %d", action)
	}
	v6.answer(t, v6.frame(nil))
}
