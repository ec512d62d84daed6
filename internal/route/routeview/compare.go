// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"fmt"
	"net/netip"
	"strings"

	"culvert/internal/route/routeplane"
)

// differs describes how the mirror's answer for a destination contradicts the kernel's route, "" if it does not. Entries
// for which the programs ask the kernel cannot differ.
func (k *kernel) differs(to netip.Addr, e entry, r way) string {
	hop := e.hop
	switch hop.Action {
	case routeplane.Ask, routeplane.Connected:
		return ""
	case routeplane.Forward:
		return k.differsForward(to, hop, r)
	case routeplane.Resolve, routeplane.Elsewhere:
		if r.kind != unicast {
			return "the kernel does not forward it"
		}
		if hop.Dev != 0 && !r.several && r.dev != hop.Dev {
			return fmt.Sprintf("the kernel sends by %s", k.name(r.dev))
		}
		return ""
	case routeplane.Local:
		if r.kind != local && r.kind != broadcast {
			return "the kernel does not keep it"
		}
		return ""
	}
	for action, same := range map[routeplane.Action]kind{
		routeplane.None: none, routeplane.Unreachable: unreachable, routeplane.Prohibit: prohibit,
		routeplane.Blackhole: blackhole,
	} {
		if hop.Action == action && r.kind != same {
			return fmt.Sprintf("the kernel says %s", r.kind)
		}
	}
	return ""
}

func (k *kernel) differsForward(to netip.Addr, hop routeplane.Hop, r way) string {
	switch {
	case r.kind != unicast:
		return "the kernel does not forward it"
	case r.several:
		return "the kernel chooses among several next hops"
	case r.tunnel:
		return "the kernel wraps it up"
	case r.dev != hop.Dev:
		return fmt.Sprintf("the kernel sends by %s", k.name(r.dev))
	}
	at := r.gateway
	if !at.IsValid() {
		at = to
	}
	mac, known := k.neighs[gateway{r.dev, at}]
	link, there := k.links[r.dev]
	switch {
	case !known:
		return fmt.Sprintf("the kernel knows no neighbor %s", at)
	case [6]byte(mac) != hop.DstMAC:
		return fmt.Sprintf("the kernel has %s at %s", at, mac)
	case !there:
		return "the device is gone"
	}
	a := link.Attrs()
	switch mtu := uint32(a.MTU); {
	case len(a.HardwareAddr) == 6 && [6]byte(a.HardwareAddr) != hop.SrcMAC:
		return fmt.Sprintf("the fast path sends from %s, which is not the address of %s", hardware(hop.SrcMAC), a.Name)
	case uint32(hop.MTU) > mtu || r.mtu != 0 && uint32(hop.MTU) > r.mtu:
		return fmt.Sprintf("the fast path has an MTU of %d", hop.MTU)
	}
	return ""
}

// text describes a route in the words of ip-route(8).
func (k *kernel) text(r kernelRoute) string {
	switch r.kind {
	case none:
		return "no route"
	case multicast:
		return "multicast"
	case refused:
		return "refused: " + r.why
	}
	var words []string
	if r.kind != unicast {
		words = append(words, string(r.kind))
	}
	prefix := r.prefix.String()
	switch {
	case r.prefix.Bits() == 0 && r.kind != unicast && r.table == 0: // the kernel answered with an error, and no prefix
		prefix = ""
	case r.prefix.Bits() == 0:
		prefix = "default"
	case r.prefix.IsSingleIP():
		prefix = r.prefix.Addr().String()
	}
	if prefix != "" {
		words = append(words, prefix)
	}
	if r.gateway.IsValid() {
		words = append(words, "via", r.gateway.String())
	}
	if r.dev != 0 {
		words = append(words, "dev", k.name(r.dev))
	}
	if r.several {
		words = append(words, "by several next hops")
	}
	if r.tunnel {
		words = append(words, "encap")
	}
	return strings.Join(words, " ")
}

// text describes the mirror's answer for a destination.
func (v *view) text(to netip.Addr, e entry, k *kernel) string {
	if e.hop.Action == routeplane.Forward {
		return fmt.Sprintf("forward to %s%s", v.nextHop(e.hop, to, k), e.inBrackets())
	}
	d, ok := hopReasons[e.hop.Action]
	if !ok {
		return "asks the kernel"
	}
	return d.why + e.inBrackets()
}
