// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"

	"culvert/internal/datapath"
	"culvert/internal/host/netfilter"
	"culvert/internal/route/routeview"
	"culvert/internal/show/text"
)

// Route is the IP router of a data plane.
type Route struct {
	routeview.State
	// Netfilter is what forwarded packets would pass in the stack, and go past in the fast path. It is known in the caller's
	// own network namespace only.
	Netfilter []netfilter.Finding `json:"netfilter,omitempty"`
	// NetfilterProblem is the error of looking for it, "" if there was none.
	NetfilterProblem string `json:"netfilter_problem,omitempty"`
	// NetfilterPrograms are the eBPF programs at netfilter's hooks, of all network namespaces on the machine.
	NetfilterPrograms []netfilter.Finding `json:"netfilter_programs,omitempty"`
}

func (r *Router) describeRoute(inst *datapath.Instance) error {
	state, err := routeview.Describe(inst)
	if err == nil && state != nil {
		r.Route = &Route{State: *state}
	}
	return err
}

// findNetfilter looks for rules of netfilter that packets go past if an IP router of this network namespace forwards them.
func (r Report) findNetfilter() {
	for n := range r.Routers {
		router := &r.Routers[n]
		if !router.Here || router.Route == nil || router.detached() {
			continue
		}
		var devices []string
		for _, i := range router.Interfaces {
			if i.Attached {
				devices = append(devices, i.Interface)
			}
		}
		found, err := netfilter.FindOn(devices)
		if err == nil {
			router.Route.NetfilterPrograms, err = netfilter.Programs()
		}
		if err != nil {
			router.Route.NetfilterProblem = err.Error()
		}
		router.Route.Netfilter = found
	}
}

func (r *Route) lines() []string {
	families := "IPv4 and IPv6 " + r.IPv4.String()
	if asks, ok := strings.CutPrefix(r.IPv4.String(), "asks "); ok {
		families = "IPv4 and IPv6 ask " + asks
	}
	if r.IPv4.String() != r.IPv6.String() {
		families = fmt.Sprintf("IPv4 %s  IPv6 %s", r.IPv4, r.IPv6)
	}
	lines := []string{fmt.Sprintf("  route  %s  memory %s", families, text.ShortBytes(r.Memory))}
	if len(r.Netfilter) > 0 {
		passes := "go past"
		if r.IPv4.By == routeview.Kernel && r.IPv6.By == routeview.Kernel {
			passes = "pass"
		}
		lines = append(lines, "  netfilter  forwarded packets "+passes+" "+netfilter.Summary(r.Netfilter))
	}
	if len(r.NetfilterPrograms) > 0 {
		lines = append(lines, "  netfilter  forwarded packets go past these, if they are in this network namespace: "+netfilter.Summary(r.NetfilterPrograms))
	}
	if r.NetfilterProblem != "" {
		lines = append(lines, "  netfilter  cannot be read: "+r.NetfilterProblem)
	}
	return lines
}
