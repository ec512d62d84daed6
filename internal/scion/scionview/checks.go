// SPDX-License-Identifier: Apache-2.0

package scionview

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/scionproto/scion/pkg/addr"

	"culvert/internal/scion/scionplane"
)

// longest is the longest SCION packet that the reference router takes, in bytes.
const longest = 8488

// checked ends a packet that one of the checks before the MAC refuses, in their order (bpf/scion/check.h), and returns true then.
// in is the interface by which the hop field lets the packet in.
func (w *walk) checked(in uint16) bool {
	local := addr.IA(w.config.LocalIA)
	link := w.config.Links[w.in]
	switch {
	case w.expired():
	case w.external() && link.IfID != in:
		w.punt("scion-ingress", fmt.Sprintf("the hop field is for interface %d", in))
	case w.length > longest || int(binary.BigEndian.Uint16(w.raw[6:])) != w.length-w.head:
		w.punt("scion-length", "the payload length is wrong, or the packet has more than 8488 bytes")
	case !w.external() && w.hop > 0 && !w.fromOwner():
		w.drop("scion-transit-src", "dropped: claims to have entered the AS by an interface that is not behind this link")
	case !w.external() && w.hop == 0 && w.src != local, w.external() && w.src == local:
		w.punt("scion-src-ia", "the source AS cannot come from there")
	case !w.external() && w.dst == local, w.external() && w.last() != (w.dst == local):
		w.punt("scion-dst-ia", "the destination AS does not fit the place on the path")
	case w.src == local && w.srcType == hostService:
		w.drop("scion-src-service", "dropped: a service address as local source")
	case w.src == local && !w.hostSource():
		w.punt("scion-src-host", "the local source is no host address")
	default:
		return false
	}
	return true
}

// expired ends a packet whose current hop field has expired.
func (w *walk) expired() bool {
	if !w.packet.At.After(w.expires()) {
		return false
	}
	w.punt("scion-expired", "the hop field has expired")
	return true
}

// fromOwner tells whether a packet from inside comes from the router that owns the interface by which it claims to have entered the
// AS (scion_check_transit_src).
func (w *walk) fromOwner() bool {
	hop := w.hop
	if !w.peering && w.switched() {
		hop--
	}
	id, _ := w.interfaces(hop)
	if id == 0 {
		return w.in == 0
	}
	f := w.iface(id)
	return f != nil && f.Link == w.in
}

// hostSource tells whether the source is a host address that the reference takes.
func (w *walk) hostSource() bool {
	switch w.srcType {
	case hostIPv4:
		return true
	case hostIPv6:
		a, _ := netip.AddrFromSlice(w.raw[w.meta-16 : w.meta])
		return !a.Is4In6()
	}
	return false
}

// iface returns an interface of the AS, nil if there is none with the ID.
func (e *explainer) iface(id uint16) *scionplane.Interface {
	for n := range e.config.Interfaces {
		if e.config.Interfaces[n].ID == id {
			return &e.config.Interfaces[n]
		}
	}
	return nil
}

// outbound follows scion_outbound: to another AS, or to the sibling with the way there.
func (w *walk) outbound() error {
	xover := !w.peering && w.switches()
	if xover {
		w.hop, w.info = w.hop+1, w.infoOf(w.hop+1)
		in, out := w.interfaces(w.hop)
		w.step.Add(fmt.Sprintf("the next segment begins here: hop field: in by interface %d, out by %d", in, out))
		if w.expired() {
			return nil
		}
		if ok, err := w.mac(false); err != nil || !ok {
			return err
		}
	}
	_, id := w.interfaces(w.hop)
	f := w.iface(id)
	if f == nil {
		w.punt("scion-egress", fmt.Sprintf("interface %d is not in the topology", id))
		return nil
	}
	link, state := w.config.Links[f.Link], w.links[f.Link]
	up := "down"
	if state.Up {
		up = "up"
	}
	w.step.Add(fmt.Sprintf("interface %d: %s, %s", id, w.linkText(f.Link), up))
	if reason, text := w.linkRefused(f, link, xover); reason != "" {
		w.punt(reason, text)
		return nil
	}
	external := link.Scope == scionplane.ScopeExternal
	_, alert := w.alerts()
	switch {
	case external && alert:
		w.punt("scion-egress-alert", "traceroute asks the egress interface")
		return nil
	case !state.Up:
		w.punt("scion-link-down", "the link is down")
		return nil
	case external && w.last():
		w.drop("scion-path", "dropped: "+errPath.Error())
		return nil
	}
	reason, text := "scion-in-transit", "to the sibling "+link.Remote.String()
	if external {
		text = fmt.Sprintf("out of interface %d to %s", id, addr.IA(link.NeighborIA))
		switch {
		case uint64(w.src) == w.config.LocalIA:
			reason = "scion-out"
		case w.external():
			reason = "scion-br-transit"
		default:
			reason = "scion-out-transit"
		}
	}
	switch {
	case state.NextHop.IfIndex == 0 && w.plane.Unattended():
		w.step.Unsure, w.step.Text = true, text+": the kernel is asked for the next hop"
	case state.NextHop.IfIndex == 0:
		w.punt("scion-next-hop", "no neighbor is known for the link: would be sent "+text)
	default:
		w.send(reason, text, state.NextHop, link.Local.Addr().Is6())
	}
	return nil
}

// linkRefused returns the reason for two links that may not follow each other.
func (w *walk) linkRefused(f *scionplane.Interface, link scionplane.Link, xover bool) (reason, text string) {
	const (
		core, parent, child, peer = scionplane.LinkCore, scionplane.LinkParent, scionplane.LinkChild, scionplane.LinkPeer
		segments                  = "these two links may not meet at a segment switch"
	)
	if !w.external() {
		switch {
		case link.Scope == scionplane.ScopeSibling:
			return "scion-egress", "from inside, and the interface is a sibling's"
		case xover:
			return "scion-segment-change", segments
		}
		return "", ""
	}
	from := scionplane.LinkUnset
	if i := w.iface(w.config.Links[w.in].IfID); i != nil {
		from = i.Type
	}
	to := f.Type
	switch {
	case xover && !(from == core && to == child || from == child && (to == core || to == child)):
		return "scion-segment-change", segments
	case !xover && !(from == core && to == core || from == child && (to == parent || to == peer) || (from == parent || from == peer) && to == child):
		return "scion-link-type", "these two links may not follow each other in a segment"
	}
	return "", ""
}
