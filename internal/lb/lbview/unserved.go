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

// unserved tells what becomes of a packet that no backend takes: it is dropped where the kernel would send it on
// (lb_unserved in bpf/lb/unclaimed.h).
func (v *view) unserved(e *Explanation, to lb.Service, client netip.AddrPort, iface string) error {
	interfaces := v.inst.AttachedNow()
	if iface != "" {
		if !slices.Contains(interfaces, iface) {
			return usage.Errorf("the load balancer is not attached to %s, but to %s", iface, strings.Join(interfaces, ", "))
		}
		interfaces = []string{iface}
	}
	const noBackend = "the VIP has no backend for new flows"
	var on map[string]bool
	if v.plane.Options().Unclaimed != lbplane.Pass {
		var err error
		if on, err = v.plane.GoesOn(uint8(to.Protocol), client.Addr(), to.Addr, interfaces); err != nil {
			return err
		}
	}
	var dropped, passed []string
	for _, name := range interfaces {
		if on[name] {
			dropped = append(dropped, name)
		} else {
			passed = append(passed, name)
		}
	}
	switch {
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
