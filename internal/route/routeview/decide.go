// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"fmt"
	"net/netip"

	"culvert/internal/route/routeplane"
)

// query is a plain packet: TCP or UDP, without options, within the MTU, with hops left.
type query struct {
	to, from netip.Addr
	// in is the index of the device by which it comes in, 0 if unknown.
	in int
}

// decision is what the fast path does with a packet.
type decision struct {
	// verdict and reason are what the packet is counted under.
	verdict, reason string
	// entry is the mirror's answer, if it was asked.
	entry entry
	// mirrored is true if the mirror decided, so that the decision can be wrong. asked is true if the program calls
	// bpf_fib_lookup.
	mirrored, asked bool
	// once is true if the program remembers the kernel's answer for each flow. Its first packet is counted under route-fib.
	once bool
	// hop is the next hop of a forwarded packet.
	hop routeplane.Hop
	// why describes the decision in words.
	why string
}

// hopReasons are the decisions for next hops to which nothing is forwarded (route_hop_reason of bpf/route/stage.h).
var hopReasons = map[routeplane.Action]decision{
	routeplane.Local:       {verdict: "pass", reason: "route-local", why: "to this host"},
	routeplane.None:        {verdict: "punt", reason: "route-none", why: "no route, to the kernel"},
	routeplane.Unreachable: {verdict: "punt", reason: "route-unreachable", why: "unreachable, to the kernel"},
	routeplane.Prohibit:    {verdict: "punt", reason: "route-prohibit", why: "prohibited, to the kernel"},
	routeplane.Blackhole:   {verdict: "drop", reason: "route-blackhole", why: "blackhole, dropped"},
	routeplane.Resolve:     {verdict: "punt", reason: "route-neighbor", why: "no neighbor known, to the kernel"},
	routeplane.Elsewhere: {verdict: "pass", reason: "route-egress",
		why: "to the kernel, because it leaves by a device that frames cannot be redirected to"},
}

// neverForwarded returns the decision for a destination to which nothing is forwarded, whatever the tables say
// (route_check4 and route_check6_dst of bpf/route/stage.h).
func neverForwarded(to netip.Addr) (d decision, found bool) {
	martian := decision{verdict: "punt", reason: "route-martian", why: "martian destination, to the kernel"}
	switch {
	case to.IsMulticast():
		return decision{verdict: "punt", reason: "route-multicast", why: "multicast, to the kernel"}, true
	case to.Is4():
		switch b := to.As4(); {
		case b == [4]byte{255, 255, 255, 255}:
			return decision{verdict: "pass", reason: "route-local", why: "to this host"}, true
		case b[0] == 127 || b == [4]byte{}:
			return martian, true
		}
	case to.IsLinkLocalUnicast():
		return decision{verdict: "pass", reason: "route-local", why: "on the link, to the kernel"}, true
	case upper(to) == [8]byte{}:
		return martian, true
	}
	return d, false
}

// martianSource reports whether packets from an address are never forwarded.
func martianSource(from netip.Addr) bool {
	if from.Is4() {
		b := from.As4()
		return b == [4]byte{} || b[0] == 127 || from.IsMulticast() || b == [4]byte{255, 255, 255, 255}
	}
	return from.IsMulticast() || from.IsLinkLocalUnicast() || upper(from) == [8]byte{}
}

// upper returns the upper half of an IPv6 address.
func upper(a netip.Addr) [8]byte {
	b := a.As16()
	return [8]byte(b[:8])
}

// decide works out what the fast path does with a packet, in the order of route in bpf/route/stage.h. It also returns the
// kernel's route.
func (v *view) decide(q query, k *kernel) (d decision, answer kernelRoute, err error) {
	is6 := q.to.Is6()
	if answer, err = k.ask(q.to, q.from, q.in); err != nil {
		return d, answer, err
	}
	dev, carries := v.devs[q.in]
	state, err := v.condition(is6)
	if err != nil {
		return d, answer, err
	}
	switch {
	case !carries:
		return decision{why: fmt.Sprintf("to the kernel, because %s does not carry culvert", k.name(q.in))}, answer, nil
	case is6 && !dev.Forward6, !is6 && !dev.Forward4:
		return decision{verdict: "pass", reason: "route-off",
			why: fmt.Sprintf("to the kernel, because %s forwards no %s", k.name(q.in), familyName(is6))}, answer, nil
	case state.By == Kernel:
		return decision{verdict: "pass", reason: "route-kernel", why: state.String()}, answer, nil
	}
	if d, found := neverForwarded(q.to); found {
		return d, answer, nil
	}
	martian := &decision{verdict: "punt", reason: "route-martian", why: "martian source, to the kernel"}
	if !is6 && martianSource(q.from) {
		return *martian, answer, nil
	}
	if d.entry, err = v.find(q.to); err != nil {
		return d, answer, err
	}
	current := state.By == Mirror
	if current && d.entry.hop.Action == routeplane.Local {
		return v.byMirror(q, d, k), answer, nil
	}
	d.asked = !current || d.entry.asks()
	var refusal *decision
	switch {
	case !is6:
		if refusal, err = v.source(q, dev, current, k); err != nil {
			return d, answer, err
		}
	case martianSource(q.from):
		refusal = martian
	}
	if refusal != nil && d.asked { // the program does not know whether the packet is for this host
		refusal.verdict, refusal.reason = "pass", "route-kernel"
	}
	if refusal != nil {
		return *refusal, answer, nil
	}
	if !d.asked {
		return v.byMirror(q, d, k), answer, nil
	}
	d.once = current && answer.several && d.entry.hop.Remember
	d.why = v.whyAsked(d.entry, answer, state)
	return v.byKernel(q, d, k, answer), answer, nil
}

// byMirror returns the decision for a next hop of the mirror, as the end of route_find does.
func (v *view) byMirror(q query, d decision, k *kernel) decision {
	d.mirrored, d.hop = true, d.entry.hop
	if r, ok := hopReasons[d.hop.Action]; ok {
		d.verdict, d.reason, d.why = r.verdict, r.reason, r.why
		if d.hop.Dev != 0 && d.hop.Action != routeplane.Local {
			d.why += " (dev " + k.name(d.hop.Dev) + ")"
		}
		d.why += ", by the mirror" + d.entry.inBrackets()
		return d
	}
	d.verdict, d.reason = "fwd", "route"
	d.why = "forward to " + v.nextHop(d.hop, q.to, k) + ", by the mirror" + d.entry.inBrackets()
	return v.redirect(q, d, k)
}

// redirect passes a packet to the kernel if it would leave where it came in and the kernel sends redirects.
func (v *view) redirect(q query, d decision, k *kernel) decision {
	if d.hop.Dev == q.in && (q.to.Is6() || v.devs[q.in].Redirects) {
		d.verdict, d.reason = "pass", "route-redirect"
		d.why = "to the kernel, because it leaves by " + k.name(q.in) + ", where it came in: would " + d.why
	}
	return d
}

// nextHop describes the neighbor of a next hop. The mirror has only its MAC address.
func (v *view) nextHop(hop routeplane.Hop, to netip.Addr, k *kernel) string {
	name := ""
	for n, mac := range k.neighs {
		if n.dev != hop.Dev || [6]byte(mac) != hop.DstMAC {
			continue
		}
		// A neighbor may have several addresses. Prefer the destination itself, then the first of its family.
		addr := n.addr.String()
		switch {
		case n.addr == to:
			return fmt.Sprintf("%s %s dev %s", addr, mac, k.name(hop.Dev))
		case n.addr.Is6() == to.Is6() && !n.addr.IsLinkLocalUnicast() && (name == "" || addr < name):
			name = addr
		}
	}
	if name != "" {
		name += " "
	}
	return fmt.Sprintf("%s%s dev %s", name, hardware(hop.DstMAC), k.name(hop.Dev))
}

// byKernel returns the decision for the kernel's answer, as route_by_kernel does.
func (v *view) byKernel(q query, d decision, k *kernel, answer kernelRoute) decision {
	hash := v.state.Policy.Hash4
	if q.to.Is6() {
		hash = v.state.Policy.Hash6
	}
	asks := d.why
	done := func(verdict, reason, what string) decision {
		d.verdict, d.reason, d.why = verdict, reason, what
		if asks != "" {
			d.why += ", " + asks
		}
		return d
	}
	if hash > 1 {
		return done("pass", "route-kernel", "to the kernel, because of its fib_multipath_hash_policy")
	}
	switch answer.kind {
	case local, broadcast:
		return done("pass", "route-local", "to this host")
	case none: // bpf_fib_lookup does not distinguish this from the above
		return done("pass", "route-local", hopReasons[routeplane.None].why)
	case unreachable:
		return done("punt", "route-unreachable", hopReasons[routeplane.Unreachable].why)
	case prohibit:
		return done("punt", "route-prohibit", hopReasons[routeplane.Prohibit].why)
	case blackhole:
		return done("drop", "route-blackhole", hopReasons[routeplane.Blackhole].why)
	case refused, otherKind:
		return done("punt", "route-source", "to the kernel, which takes no such packet")
	}
	switch {
	case answer.tunnel:
		return done("pass", "route-kernel", "to the kernel, which wraps it up")
	case answer.several && d.once:
		return done("fwd", "route", "forward to one of several next hops")
	case answer.several:
		return done("fwd", "route-fib", "forward to one of several next hops")
	}
	at := answer.gateway
	if !at.IsValid() {
		at = q.to
	}
	mac, known := k.neighs[gateway{answer.dev, at}]
	if !known {
		return done("punt", "route-neighbor", fmt.Sprintf("no neighbor %s known (dev %s), to the kernel", at, k.name(answer.dev)))
	}
	out, ok := v.devs[answer.dev]
	if !ok || !out.Xmit {
		return done("pass", "route-egress", hopReasons[routeplane.Elsewhere].why+" (dev "+k.name(answer.dev)+")")
	}
	d.hop = routeplane.Hop{Action: routeplane.Forward, Dev: answer.dev, Port: out.Port, VLAN: out.VLAN, DstMAC: [6]byte(mac)}
	return v.redirect(q, done("fwd", "route-fib", fmt.Sprintf("forward to %s %s dev %s", at, mac, k.name(answer.dev))), k)
}

// whyAsked returns why the program asks the kernel, as far as is known.
func (v *view) whyAsked(e entry, answer kernelRoute, c Condition) string {
	if c.By != Mirror {
		return c.String()
	}
	const asks = "asks the kernel: "
	switch {
	case e.lost:
		return asks + "the mirror has no room for it (blocks4 and blocks6 of [route])"
	case e.connected:
		return asks + "the mirror knows no neighbor of that address"
	case !e.prefix.IsValid():
		return asks + "the mirror does not know the route"
	case answer.several && e.hop.Remember:
		return "asks the kernel once for each flow: several next hops"
	case answer.several:
		return asks + "several next hops"
	case answer.tunnel:
		return asks + "the route wraps packets up"
	}
	return asks + "the way depends on more than the destination, or the tables are being read again (" + e.prefix.String() + ")"
}
