// SPDX-License-Identifier: Apache-2.0

package pipelinefuzz

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"culvert/internal/lb/lbplane"
)

// ringSize is a small prime.
const ringSize = 17

// vip is a service of the load balancer.
type vip struct {
	number uint32
	addr   netip.Addr
	proto  byte
	port   uint16 // 0 for all
	ring   []lbplane.Backend
	// source assigns all flows of a client to one backend, sourcePort those of a client's port.
	source, sourcePort bool
	// id names the one server that connection IDs of QUIC can name.
	id []byte
	of lbplane.BackendID
}

// flow identifies a flow of the load balancer.
type flow struct {
	client netip.AddrPort
	vip    uint32
	port   uint16
	proto  byte
}

const gueBase = 6080

// fillBalance makes VIPs of all kinds with backends of all kinds.
func (b *bed) fillBalance() error {
	var err error
	if b.plane, err = lbplane.View(b.inst); err != nil {
		return err
	}
	out := b.net.Devices[1]
	add := func(a string, change func(*lbplane.Backend)) error {
		n := uint32(len(b.backends) + 1)
		m := lbplane.Backend{
			ID: lbplane.NewBackendID(n, 1), Addr: addr(a), Encap: lbplane.IPIP, GUEPort: gueBase + uint16(n), Used: true,
			Source: netip.MustParsePrefix("10.200.0.0/16"),
			Hop:    lbplane.Hop{Port: out.IfIndex, SrcMAC: out.MAC, DstMAC: [6]byte{2, 0, 0, 9, 0, byte(n)}, MTU: 1500},
		}
		if m.Addr.Is6() {
			m.Source = netip.MustParsePrefix("fd00:200::/64")
		}
		change(&m)
		b.backends = append(b.backends, m)
		return b.plane.SetBackend(m)
	}
	for f := range 2 {
		for n, encap := range []lbplane.Encap{lbplane.IPIP, lbplane.GUE, lbplane.L2, lbplane.IPIP} {
			for v, vlan := range []uint16{0, 0x1000 | 7} {
				for s := range 2 {
					a := []string{"10.88.0.%d", "fd00:88::%d"}[f]
					if err := add(fmt.Sprintf(a, 1+n*4+v*2+s), func(m *lbplane.Backend) {
						m.Encap, m.Hop.VLAN = encap, vlan
						m.Hop.MTU = []uint16{1500, 9000, 1280}[(n+v+s)%3]
						if s == 1 {
							m.Source = netip.PrefixFrom(m.Source.Addr().Next(), m.Source.Addr().BitLen())
						}
						m.Hop.LinearOnly = n == 3
					}); err != nil {
						return err
					}
				}
			}
		}
	}
	all := b.backends
	if err := errors.Join(
		add("10.88.0.100", func(m *lbplane.Backend) { m.Hop.Port = 0 }),
		add("10.88.0.101", func(m *lbplane.Backend) { m.Down = true }),
	); err != nil {
		return err
	}
	lost, down := b.backends[len(all)], b.backends[len(all)+1]
	for _, v := range []struct {
		to      string
		proto   byte
		ring    []lbplane.Backend
		source  bool
		move    bool
		rotated uint8 // config rotation, 0 for none of QUIC
	}{
		{"192.0.2.1:80", protoTCP, all[:ringSize], false, false, 0},
		{"[2001:db8::1]:80", protoTCP, all[5 : 5+ringSize], false, false, 0},
		{"192.0.2.1:0", protoUDP, all[:ringSize], true, false, 0},
		{"[2001:db8::1]:0", protoUDP, all[3 : 3+ringSize], true, false, 0},
		{"192.0.2.1:443", protoUDP, all[:ringSize], false, false, 2},
		{"[2001:db8::1]:443", protoUDP, all[9 : 9+ringSize], false, false, 2},
		{"192.0.2.2:80", protoTCP, nil, false, false, 0},
		{"192.0.2.3:80", protoTCP, []lbplane.Backend{lost}, false, false, 0},
		{"192.0.2.4:0", protoTCP, append([]lbplane.Backend{down}, all[:6]...), false, true, 0},
		{"192.0.2.5:53", protoUDP, all[:4], false, false, 0},
		{"[2001:db8::5]:53", protoUDP, all[:4], false, false, 0},
		{"192.0.2.6:80", protoTCP, nil, false, false, 0},
		{"192.0.2.6:0", protoUDP, all[:6], false, false, 0},
		{"[2001:db8::6]:80", protoTCP, nil, false, false, 0},
		{"[2001:db8::6]:0", protoUDP, all[:6], false, false, 0},
	} {
		to := netip.MustParseAddrPort(v.to)
		s := vip{number: uint32(len(b.vips)), addr: to.Addr(), proto: v.proto, port: to.Port(), ring: v.ring, source: v.source}
		ring := make([]lbplane.BackendID, ringSize)
		for n := range ring {
			if len(v.ring) > 0 {
				ring[n] = v.ring[n%len(v.ring)].ID
			}
		}
		s.sourcePort = s.addr == sourcePortVIP4 || s.addr == sourcePortVIP6
		conf := lbplane.VIP{Number: s.number, Source: v.source, SourcePort: s.sourcePort, Move: v.move, Empty: len(v.ring) == 0}
		if v.rotated > 0 {
			s.id, s.of = []byte{7, 8}, v.ring[2].ID
			conf.ServerID, conf.IDConfig = uint8(len(s.id)), v.rotated
			if err := b.plane.SetServerID(s.number, s.id, s.of); err != nil {
				return err
			}
		}
		key := lbplane.VIPKey{Addr: s.addr, Proto: s.proto, Port: s.port}
		if err := errors.Join(b.plane.SetRing(s.number, ring), b.plane.SetVIP(key, conf)); err != nil {
			return err
		}
		b.vips = append(b.vips, s)
	}
	return b.fillVLANs()
}

// service returns the VIP of an address, protocol and port, nil for none.
func (b *bed) service(dst netip.Addr, proto byte, port uint16) (all *vip) {
	for n := range b.vips {
		v := &b.vips[n]
		if v.addr != dst || v.proto != proto {
			continue
		}
		if v.port == port {
			return v
		}
		if v.port == 0 {
			all = v
		}
	}
	return all
}

func (b *bed) isVIP(dst netip.Addr) bool {
	return slices.ContainsFunc(b.vips, func(v vip) bool { return v.addr == dst })
}

// checkBalance checks a packet with a reason of the load balancer.
func (b *bed) checkBalance(tr trial, o outcome) error {
	if !b.on.lb {
		return errors.New("there is no load balancer")
	}
	in := decode(tr.frame)
	if in.ip == 0 || !b.ours(tr) || in.tag(tr.frame) < 0 {
		// The load balancer does not read headers with options, so these may be malformed. Other malformed packets are not
		// its own.
		unread := in.ip == 0 && in.kind == typeIPv4 && in.head > 20 && b.ours(tr) && in.tag(tr.frame) >= 0
		if unread && (o.reason == "punt lb-headers" || o.reason == "drop lb-unclaimed") {
			return nil
		}
		return fmt.Errorf("no packet for a load balancer: %+v", in)
	}
	if !b.isVIP(in.dst) {
		return fmt.Errorf("%v is no VIP's address", in.dst)
	}
	switch o.reason {
	case "drop lb-unclaimed", "drop lb-empty", "fwd lb-unreachable":
		return b.checkUnclaimed(tr, &in, o)
	}
	if !b.onVLAN(tr, &in) {
		return errors.New("a VLAN that this host does not have")
	}
	if b.goesOn(&in) && (o.reason == "pass lb-empty" || o.reason == "punt lb-headers") {
		return errors.New("the kernel would send it on")
	}
	if o.reason[:4] != "fwd " {
		return nil
	}
	if in.ip == 4 && in.head != 20 {
		return errors.New("a packet with options leaves")
	}
	switch o.reason {
	case "fwd lb-flow", "fwd lb-new", "fwd lb-untracked", "fwd lb-quic":
		return b.checkFlow(tr, &in, o)
	case "fwd lb-fragment":
		if !in.later {
			return errors.New("it is no later fragment")
		}
		// The next header of a later IPv6 fragment does not count (RFC 8200, 4.5).
		_, err := b.sent(tr, &in, o.frame, func(v *vip) bool { return v.addr == in.dst && (v.proto == in.l4proto || in.ip == 6) })
		return err
	case "fwd lb-icmp":
		return b.checkError(tr, &in, o)
	case "fwd lb-echo":
		return checkEcho(tr.frame, &in, o.frame)
	case "fwd lb-too-big":
		return b.checkTooBig(tr.frame, &in, o.frame)
	}
	return checkAnswer(tr.frame, &in, o.frame)
}

// checkFlow checks packets of TCP and UDP, and their first fragments.
func (b *bed) checkFlow(tr trial, in *view, o outcome) error {
	sport, dport, ok := in.ports()
	if !ok {
		return errors.New("it has no ports")
	}
	service := b.service(in.dst, in.l4proto, dport)
	if service == nil {
		return errors.New("no service has that port")
	}
	m, err := b.sent(tr, in, o.frame, func(v *vip) bool { return v == service })
	if err != nil {
		return err
	}
	f := flow{netip.AddrPortFrom(in.src, sport), service.number, dport, in.l4proto}
	// Rings do not change here, so no flow moves, whatever flags a segment has.
	if has, ok := b.assigned[f]; ok && has != m.ID && service.id == nil {
		return fmt.Errorf("a flow of backend %d went to %d", has.Number(), m.ID.Number())
	}
	if o.reason != "fwd lb-quic" && service.id == nil {
		if err := b.together(f, service, m.ID); err != nil {
			return err
		}
	}
	switch o.reason {
	case "fwd lb-new":
		b.assigned[f] = m.ID
	case "fwd lb-quic":
		if m.ID != service.of {
			return fmt.Errorf("it went to backend %d, its connection ID names %d", m.ID.Number(), service.of.Number())
		}
		if _, ok := b.assigned[f]; !ok { // a flow that the table has stays where it is
			b.assigned[f] = m.ID
		}
	case "fwd lb-flow":
		// After an entry has expired, the flow goes to the server that the connection ID names. The model does not see that.
		if has, ok := b.assigned[f]; ok && has != m.ID && (service.id == nil || m.ID != service.of) {
			return fmt.Errorf("a flow of backend %d went to %d", has.Number(), m.ID.Number())
		}
	}
	return nil
}

// sent returns the backend to which a packet was sent, and checks that it is encapsulated as that backend wants and is in the
// VIP's ring.
func (b *bed) sent(tr trial, in *view, out []byte, of func(*vip) bool) (m lbplane.Backend, err error) {
	o := decode(out)
	at := slices.IndexFunc(b.backends, func(m lbplane.Backend) bool { return bytes.Equal(out[:6], m.Hop.DstMAC[:]) })
	if at < 0 {
		return m, fmt.Errorf("it was sent to %x, where no backend is", out[:6])
	}
	m = b.backends[at]
	found := false
	for n := range b.vips {
		found = found || of(&b.vips[n]) && slices.ContainsFunc(b.vips[n].ring, func(r lbplane.Backend) bool { return r.ID == m.ID })
	}
	switch {
	case !found:
		return m, fmt.Errorf("backend %d is of no such VIP", m.ID.Number())
	case !bytes.Equal(out[6:12], m.Hop.SrcMAC[:]):
		return m, fmt.Errorf("source MAC %x", out[6:12])
	case o.tag(out) != int(m.Hop.VLAN&0xfff):
		return m, fmt.Errorf("VLAN %d, want %d", o.tag(out), m.Hop.VLAN&0xfff)
	case len(o.packet) > int(m.Hop.MTU):
		return m, fmt.Errorf("%d bytes to a backend with MTU %d", len(o.packet), m.Hop.MTU)
	}
	inner := o.packet
	if m.Encap != lbplane.L2 {
		if inner, err = outerRight(in, &o, m); err != nil {
			return m, err
		}
		if n := len(out) - o.l3 - len(o.packet); n != tr.unseen(in, 0) {
			return m, fmt.Errorf("%d bytes behind the packet", n)
		}
	}
	if !bytes.Equal(inner, in.packet) {
		return m, errors.New("the packet was changed")
	}
	return m, nil
}

// outerRight checks the outer headers, and returns the packet in them.
func outerRight(in, o *view, m lbplane.Backend) ([]byte, error) {
	tos := func(v *view) byte {
		if v.ip == 6 {
			return v.packet[0]<<4 | v.packet[1]>>4
		}
		return v.packet[1]
	}
	switch {
	case o.dst != m.Addr:
		return nil, fmt.Errorf("it was sent to %v, not to %v", o.dst, m.Addr)
	case !m.Source.Contains(o.src):
		return nil, fmt.Errorf("outer source %v, not of %v", o.src, m.Source)
	case o.ttl != 64:
		return nil, fmt.Errorf("outer TTL %d", o.ttl)
	case tos(o) != tos(in):
		return nil, fmt.Errorf("outer TOS %#x, want %#x", tos(o), tos(in))
	case o.ip == 4 && (o.head != 20 || !bytes.Equal(o.packet[4:8], []byte{0, 0, 0x40, 0})):
		return nil, fmt.Errorf("outer header %x", o.packet[:20])
	case (o.l4proto == protoUDP) != (m.Encap == lbplane.GUE):
		return nil, fmt.Errorf("outer protocol %d", o.l4proto)
	}
	return tunnelled(o, m.GUEPort)
}

// quotedFlow is as much of a packet as an ICMP error has to quote.
type quotedFlow struct {
	src, dst     netip.Addr
	proto        byte
	sport, dport uint16
}

// quote reads what an ICMP error quotes; not ok if that is too little, has options or is a later fragment.
func quote(in *view) (q quotedFlow, ok bool) {
	b := in.packet[min(len(in.packet), in.head+8):]
	l4 := 20
	switch {
	case in.ip == 4 && len(b) >= 28 && b[0] == 0x45 && be.Uint16(b[6:])&0x1fff == 0:
		q.src, q.dst, q.proto = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20])), b[9]
	case in.ip == 6 && len(b) >= 48 && b[0]>>4 == 6:
		q.src, q.dst, q.proto, l4 = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40])), b[6], 40
		if q.proto == protoFragment {
			if len(b) < 56 || be.Uint16(b[42:])&0xfff8 != 0 {
				return q, false
			}
			q.proto, l4 = b[40], 48
		}
	default:
		return q, false
	}
	q.sport, q.dport = be.Uint16(b[l4:]), be.Uint16(b[l4+2:])
	return q, true
}

// checkError checks ICMP errors, which quote a packet from a VIP.
func (b *bed) checkError(tr trial, in *view, o outcome) error {
	if in.frag || in.ip == 4 && in.proto != protoICMP || in.ip == 6 && in.proto != protoICMPv6 {
		return fmt.Errorf("protocol %d", in.proto)
	}
	q, ok := quote(in)
	service := b.service(in.dst, q.proto, q.sport)
	if !ok || q.src != in.dst || service == nil {
		return fmt.Errorf("it quotes a packet from %v port %d", q.src, q.sport)
	}
	m, err := b.sent(tr, in, o.frame, func(v *vip) bool { return v == service })
	f := flow{netip.AddrPortFrom(q.dst, q.dport), service.number, q.sport, q.proto}
	if has, ok := b.assigned[f]; ok && err == nil && has != m.ID && !b.flowIsGone(f) {
		return fmt.Errorf("about a flow of backend %d it went to %d", has.Number(), m.ID.Number())
	}
	return err
}

// flowIsGone reports whether the table has evicted a flow for others.
func (b *bed) flowIsGone(f flow) bool {
	_, ok, err := b.plane.FindFlow(f.vip, f.client, f.port)
	return !ok || err != nil
}

// turnedAround checks the headers that all answers have in common, and returns the answer.
func turnedAround(frame []byte, in *view, out []byte) (o view, err error) {
	o = decode(out)
	switch {
	case !bytes.Equal(out[:6], frame[6:12]) || !bytes.Equal(out[6:12], frame[:6]):
		return o, fmt.Errorf("the answer goes from %x to %x", out[6:12], out[:6])
	case !slices.Equal(o.tags, in.tags):
		return o, fmt.Errorf("tags %x became %x", in.tags, o.tags)
	case o.ip != in.ip || o.src != in.dst || o.dst != in.src:
		return o, fmt.Errorf("the answer goes from %v to %v", o.src, o.dst)
	case o.ttl != 64 || o.frag:
		return o, fmt.Errorf("the answer has TTL %d", o.ttl)
	case o.dst.IsMulticast() || o.dst.IsLoopback() || o.dst.IsUnspecified() || o.dst.Is4() && o.dst.As4()[0] >= 224:
		return o, fmt.Errorf("nobody is at %v", o.dst)
	}
	return o, nil
}

// checkAnswer checks an ICMP message of the load balancer.
func checkAnswer(frame []byte, in *view, out []byte) error {
	o, err := turnedAround(frame, in, out)
	if err == nil && (o.proto != protoICMP && o.proto != protoICMPv6 || o.transportSum() != 0xffff) {
		err = fmt.Errorf("protocol %d, sum %#x", o.proto, o.transportSum())
	}
	return err
}

// checkEcho checks the answer to an echo request. A wrong checksum must stay wrong.
func checkEcho(frame []byte, in *view, out []byte) error {
	o, err := turnedAround(frame, in, out)
	if err != nil {
		return err
	}
	asked, answered := in.packet[in.head:], o.packet[o.head:]
	request, reply := byte(8), byte(0)
	if in.ip == 6 {
		request, reply = 128, 129
	}
	if len(asked) < 8 || asked[0] != request || asked[1] != 0 || len(answered) != len(asked) || len(out) != len(frame) ||
		answered[0] != reply || answered[1] != 0 || !bytes.Equal(asked[4:], answered[4:]) {
		return fmt.Errorf("%x answered with %x", asked, answered)
	}
	if (in.transportSum() == 0xffff) != (o.transportSum() == 0xffff) {
		return fmt.Errorf("the sum was %#x and is %#x", in.transportSum(), o.transportSum())
	}
	return nil
}

// checkTooBig checks the answer to a packet that is too large with its outer headers.
func (b *bed) checkTooBig(frame []byte, in *view, out []byte) error {
	if err := checkAnswer(frame, in, out); err != nil {
		return err
	}
	o := decode(out)
	_, dport, ok := in.ports()
	service := b.service(in.dst, in.l4proto, dport)
	icmp := o.packet[o.head:]
	if !ok || service == nil || len(icmp) < 8 {
		return errors.New("it was to no service")
	}
	said, quote := int(be.Uint32(icmp[4:])), icmp[8:]
	right, most := icmp[0] == 3 && icmp[1] == 4 && said < 1<<16, 576
	if in.ip == 6 {
		right, most = icmp[0] == 2 && icmp[1] == 0, 1280
	}
	if !right || len(o.packet) > most || len(quote) < 28 || !bytes.HasPrefix(in.packet, quote) {
		return fmt.Errorf("the answer is %x", icmp)
	}
	if !slices.ContainsFunc(service.ring, func(m lbplane.Backend) bool {
		room := int(m.Hop.MTU) - overhead(m)
		fits := len(in.packet) <= room
		if in.ip == 6 {
			room = max(room, 1280)
		}
		return !fits && said == room
	}) {
		return fmt.Errorf("no backend takes as much as %d bytes and no more", said)
	}
	return nil
}

func overhead(m lbplane.Backend) int {
	n := map[lbplane.Encap]int{lbplane.L2: 0, lbplane.IPIP: 20, lbplane.GUE: 28}[m.Encap]
	if n > 0 && m.Addr.Is6() {
		n += 20
	}
	return n
}
