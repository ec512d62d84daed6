// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/show/usage"
)

// unserved explains a packet to a VIP without backends: it is dropped if the kernel would forward it, else passed
// (lb_unserved in bpf/lb/unclaimed.h).
func (v *view) unserved(e *Explanation, to lb.Service, client netip.AddrPort, iface string) error {
	const noBackend = "the VIP has no backend for new flows"
	dropped, passed, err := v.onward(to, client, iface)
	switch {
	case err != nil:
		return err
	case len(dropped) == 0:
		e.Verdict, e.Reason = verdictPass, reasonEmpty
		e.Text = "goes to the kernel: " + noBackend
	case len(passed) == 0:
		e.Verdict, e.Reason = verdictDrop, reasonEmpty
		e.Text = "dropped: " + noBackend + ", and the kernel would send it on"
	default:
		e.Text = fmt.Sprintf("dropped if it comes in by %s, where the kernel would send it on, and goes to the kernel if by %s: %s",
			strings.Join(dropped, ", "), strings.Join(passed, ", "), noBackend)
	}
	return nil
}

// unclaimed explains a packet to the address of a VIP that belongs to no VIP (lb_unclaimed_stage in bpf/lb/unclaimed.h).
func (v *view) unclaimed(e *Explanation, to lb.Service, client netip.AddrPort, iface string) error {
	none := "no VIP of this address takes " + strings.ToUpper(to.Protocol.String()) + fmt.Sprintf(" to port %d", to.Port)
	mode := v.plane.Options().Unclaimed
	if mode == lbplane.Pass {
		e.Text = `goes on to the next stage: ` + none + `, and unclaimed is "pass"`
		return nil
	}
	taken, left, err := v.onward(to, client, iface)
	if err != nil {
		return err
	}
	verdict, reason, what, why := verdictFwd, reasonUnreachable, "answered with port unreachable", ""
	switch {
	case mode == lbplane.Drop:
		verdict, reason, what, why = verdictDrop, reasonUnclaimed, "dropped", `, and unclaimed is "drop"`
	case !answerable(client.Addr()):
		verdict, reason, what, why = verdictDrop, reasonUnclaimed, "dropped", ", and its source is not of one host"
	}
	switch {
	case len(taken) == 0:
		e.Text = "goes to the kernel, which would not send it on: " + none
	case len(left) == 0:
		e.Verdict, e.Reason = verdict, reason
		e.Text = what + ": " + none + why + ", and the kernel would send it on"
	default:
		e.Text = fmt.Sprintf("%s if it comes in by %s, where the kernel would send it on, and goes to the kernel if by %s: %s%s",
			what, strings.Join(taken, ", "), strings.Join(left, ", "), none, why)
	}
	return nil
}

// onward divides the interfaces, or iface if it is not "", into those from which the kernel would forward a packet, and the
// others. With unclaimed = "pass" the programs do not ask the kernel, and all are among the others.
func (v *view) onward(to lb.Service, client netip.AddrPort, iface string) (on, not []string, err error) {
	interfaces := v.inst.AttachedNow()
	if iface != "" {
		if !slices.Contains(interfaces, iface) {
			return nil, nil, usage.Errorf("the load balancer is not attached to %s, but to %s", iface, strings.Join(interfaces, ", "))
		}
		interfaces = []string{iface}
	}
	var goes map[string]bool
	if v.plane.Options().Unclaimed != lbplane.Pass {
		if goes, err = v.plane.Forwards(uint8(to.Protocol), client.Addr(), to.Addr, interfaces); err != nil {
			return nil, nil, err
		}
	}
	for _, name := range interfaces {
		if goes[name] {
			on = append(on, name)
		} else {
			not = append(not, name)
		}
	}
	return on, not, nil
}

// answerable returns whether an ICMP error may be sent to an address, as lb_icmp_may_answer in bpf/lb/icmp.h does.
func answerable(a netip.Addr) bool {
	b := a.AsSlice()
	if a.Is4() {
		return b[0] != 0 && b[0] != 127 && b[0] < 224
	}
	return b[0] != 0xff && !lowest96.Contains(a)
}

// lowest96 has the unspecified and the loopback address.
var lowest96 = netip.MustParsePrefix("::/96")
