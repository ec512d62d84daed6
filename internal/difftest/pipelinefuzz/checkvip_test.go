// SPDX-License-Identifier: Apache-2.0

package pipelinefuzz

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"culvert/internal/lb/lbplane"
)

// VIPs that assign one backend to each client port, whichever port of the VIP the client uses.
var sourcePortVIP4, sourcePortVIP6 = addr("192.0.2.6"), addr("2001:db8::6")

// onward are addresses of VIPs to which the kernel has a route.
var onward = []netip.Addr{addr("192.0.2.5"), addr("2001:db8::5"), addr("192.0.2.6"), addr("2001:db8::6")}

// VLANs of device 0: two for which this host has a device, and one that a VIP names. The IP router's mirror has one of them.
const (
	vlanHost  = 9
	vlanNamed = 41
	vlanIndex = 1001 // interface index that the mirror has for its device
)

var vlanVIP = addr("192.0.2.4")

// fillVLANs writes the VLANs into the data plane, and adds routes to VIPs.
func (b *bed) fillVLANs() error {
	var cmds []string
	// The IP router's own routes have it already, or nothing else asks for it.
	if !b.on.route {
		if err := b.kernelRoutes(); err != nil {
			return err
		}
	}
	for _, a := range onward {
		via := "10.77.0.9"
		if a.Is6() {
			via = "fe80::9"
		}
		cmds = append(cmds, fmt.Sprintf("route add %v via %s dev %s", a, via, port(1)))
	}
	for _, cmd := range cmds {
		if err := ip(cmd); err != nil {
			return err
		}
	}
	// Not all kernels have VLAN devices, so the test writes the entries that the process would write for them. They lead to the
	// interface itself.
	vlans, err := b.findMap("lb_vlans")
	if err != nil {
		return err
	}
	defer vlans.Close()
	for _, id := range []uint32{vlanHost, vlanIn} {
		if err := vlans.Put(id, [2]uint32{uint32(b.net.Devices[0].IfIndex), 0}); err != nil {
			return fmt.Errorf("write VLAN %d: %w", id, err)
		}
	}
	return b.plane.SetNamedVLAN(lbplane.NamedVLAN{Addr: vlanVIP, ID: vlanNamed})
}

// hostVLAN reports whether the kernel accepts packets of a VLAN, or untagged ones.
func hostVLAN(tr trial, v *view) bool {
	tag := v.tag(tr.frame)
	return tag == 0 || tr.in == 0 && (tag == vlanHost || tag == vlanIn)
}

// onVLAN reports whether VIPs answer on a VLAN.
func (b *bed) onVLAN(tr trial, v *view) bool {
	return hostVLAN(tr, v) || v.tag(tr.frame) == vlanNamed && v.dst == vlanVIP
}

// goesOn reports whether the kernel would forward a packet to a VIP's address, wherever it comes in. It does not if the source
// is valid only on one link.
func (b *bed) goesOn(v *view) bool {
	strict := v.ip == 6 && (v.src.IsLinkLocalUnicast() || v.src.IsMulticast() || v.src.IsLoopback())
	return slices.Contains(onward, v.dst) && !strict
}

// nobody reports whether a source is never answered.
func nobody(a netip.Addr) bool {
	if a.Is4() {
		first := a.As4()[0]
		return first == 0 || first == 127 || first >= 224
	}
	b := a.As16()
	return a.IsMulticast() || bytes.Equal(b[:12], make([]byte, 12)) // this host's, and none
}

// silent reports whether a packet that no service claims is never answered: ICMP, fragments, and headers that are not read.
func silent(v *view) bool {
	if v.ip == 4 {
		return v.proto == protoICMP || v.later || v.head != 20
	}
	if v.proto == protoFragment {
		return v.later || len(v.packet) < 48 || v.l4proto != protoTCP && v.l4proto != protoUDP
	}
	return v.proto == protoICMPv6 || slices.Contains([]byte{0, 43, 51, 59, 60, 135, 139, 140}, v.proto)
}

// checkUnclaimed checks a packet to a VIP's address that no service claims.
func (b *bed) checkUnclaimed(tr trial, in *view, o outcome) error {
	_, dport, ok := in.ports()
	service := b.service(in.dst, in.l4proto, dport)
	// A group address is never the source of a frame (IEEE 802.3, 3.2.3), and never answered.
	unanswered := silent(in) || nobody(in.src) || tr.frame[6]&1 != 0
	switch {
	case !b.goesOn(in):
		return fmt.Errorf("the kernel would not send a packet to %v on", in.dst)
	case !hostVLAN(tr, in):
		return errors.New("a VLAN that this host does not have")
	case in.discovers():
		return errors.New("neighbor discovery is the kernel's")
	case o.reason == "drop lb-empty":
		if about := b.about(in); about != nil {
			service = about
		}
		if service == nil || len(service.ring) > 0 {
			return errors.New("it is to no service without backends")
		}
		return nil
	case b.about(in) != nil && tr.linear() >= min(len(tr.frame), in.l3+128):
		return errors.New("it is about a flow of a service")
	case ok && service != nil && !in.frag && in.head == map[int]int{4: 20, 6: 40}[in.ip] && !in.src.Is4In6() && b.onVLAN(tr, in) &&
		tr.linear() >= min(len(tr.frame), in.l3+128):
		return errors.New("it is to a service")
	case in.later && b.hasService(in.dst, in.l4proto) && !b.strays[in.fragment()] && in.head == map[int]int{4: 20, 6: 40}[in.ip] &&
		tr.linear() >= min(len(tr.frame), in.l3+128):
		return errors.New("no first fragment of it was to a port of nobody's")
	case o.reason == "drop lb-unclaimed":
		// What a VIP may be meant by, and does not say, is not read either.
		cut := !ok && !in.later && b.hasService(in.dst, in.l4proto)
		// The quoted bytes must be in the first buffer.
		seen := tr.linear() >= min(len(tr.frame), in.l3+quotable(in))
		if !unanswered && !cut && seen && b.mayAnswer(tr, "fwd lb-unreachable") {
			return errors.New("it was not answered")
		}
		return nil
	case unanswered:
		return errors.New("such packets are not answered")
	}
	return checkUnreachable(tr.frame, in, o.frame)
}

// discovers reports whether a packet belongs to neighbor discovery, which is left to the kernel.
func (v *view) discovers() bool {
	return v.ip == 6 && v.proto == protoICMPv6 && (len(v.packet) <= 40 || v.packet[40] >= 133 && v.packet[40] <= 137)
}

// about returns the service that an ICMP error is about, nil for other packets and for errors that quote too little.
func (b *bed) about(in *view) *vip {
	if in.frag || in.head != map[int]int{4: 20, 6: 40}[in.ip] || len(in.packet) < in.head+8 {
		return nil
	}
	kind := in.packet[in.head]
	switch {
	case in.ip == 4 && in.proto == protoICMP && slices.Contains([]byte{3, 11, 12}, kind):
	case in.ip == 6 && in.proto == protoICMPv6 && kind >= 1 && kind <= 4:
	default:
		return nil
	}
	q, ok := quote(in)
	if !ok || q.src != in.dst {
		return nil
	}
	return b.service(in.dst, q.proto, q.sport)
}

// quotable returns how many bytes of a packet an error about it quotes.
func quotable(in *view) int {
	if in.ip == 4 {
		return min(len(in.packet), 576-20-8)
	}
	return min(len(in.packet), 1280-40-8)
}

// fragments identifies the packet of a fragment.
type fragments struct {
	src, dst netip.Addr
	proto    byte
	id       uint32
}

func (v *view) fragment() fragments {
	f := fragments{src: v.src, dst: v.dst, proto: v.l4proto}
	if v.ip == 4 {
		f.id = uint32(be.Uint16(v.packet[4:]))
	} else if v.frag {
		f.proto, f.id = 0, be.Uint32(v.packet[44:]) // of IPv6 each fragment says its protocol for itself
	}
	return f
}

// noteStray records that a first fragment is for no service. The other fragments of its packet are not either.
func (b *bed) noteStray(v *view) {
	if _, dport, ok := v.ports(); ok && v.frag && b.service(v.dst, v.l4proto, dport) == nil {
		b.strays[v.fragment()] = true
	}
}

func (b *bed) hasService(dst netip.Addr, proto byte) bool {
	return slices.ContainsFunc(b.vips, func(v vip) bool { return v.addr == dst && v.proto == proto })
}

// checkUnreachable checks the answer to a packet that no service claims.
func checkUnreachable(frame []byte, in *view, out []byte) error {
	if err := checkAnswer(frame, in, out); err != nil {
		return err
	}
	o := decode(out)
	icmp := o.packet[o.head:]
	ports := in.l4proto == protoTCP || in.l4proto == protoUDP
	want := []byte{3, 2, 0, 0, 0, 0}
	switch {
	case in.ip == 6 && ports:
		want = []byte{1, 4, 0, 0, 0, 0}
	case in.ip == 6:
		want = []byte{4, 1, 0, 0, 0, 6} // points at the next header
	case ports:
		want[1] = 3
	}
	if len(icmp) < 8 || !bytes.Equal(slices.Concat(icmp[:2], icmp[4:8]), want) {
		return fmt.Errorf("the answer is %x", icmp)
	}
	if quote := in.packet[:quotable(in)]; !bytes.Equal(icmp[8:], quote) {
		return fmt.Errorf("%d bytes are quoted, want %d", len(icmp)-8, len(quote))
	}
	return nil
}

// together checks that a flow goes to the same backend as others that the VIP keeps together with it.
func (b *bed) together(f flow, service *vip, id lbplane.BackendID) error {
	with := flow{client: f.client, vip: service.number}
	switch {
	case service.source:
		with.client = netip.AddrPortFrom(f.client.Addr(), 0)
	case !service.sourcePort:
		return nil
	}
	if has, ok := b.kept[with]; ok && has != id {
		return fmt.Errorf("a flow of %v went to backend %d, others went to %d", with.client, id.Number(), has.Number())
	}
	b.kept[with] = id
	return nil
}

// checkNotBalance checks that a packet without a reason of the load balancer is not an ordinary packet to a service, and not one
// to a VIP that the kernel would forward.
func (b *bed) checkNotBalance(tr trial, o outcome) error {
	v := decode(tr.frame)
	if !b.on.lb || v.src.Is4In6() {
		return nil
	}
	filtered := strings.Contains(o.reason, " filter")
	if !filtered && b.ours(tr) && v.ip != 0 && hostVLAN(tr, &v) && tr.linear() >= min(len(tr.frame), v.l3+128) && b.goesOn(&v) && !v.discovers() {
		return errors.New("a packet to a VIP's address that nobody takes went past the load balancer")
	}
	if !b.untouched(tr, &v, o) {
		return nil
	}
	if v.head != 20 && v.ip == 4 || v.frag {
		return nil
	}
	_, dport, ok := v.ports()
	if ok && b.service(v.dst, v.proto, dport) != nil {
		return errors.New("the load balancer did not take a packet to its service")
	}
	return nil
}
