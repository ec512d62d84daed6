// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/doctor"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/sourcestate"
	"culvert/internal/scion/scionplane"
	"culvert/internal/sflow/sflowplane"
	"culvert/internal/show/text"
)

// addShort adds the tables of a stage that are too small.
func addShort(o *doctor.Options, router string, s datapath.StageState) {
	if s.Short != "" {
		o.Outages = append(o.Outages, doctor.Outage{
			Router: router, Check: s.Stage + "-room", What: s.Short, Command: afterRaising(router, "the key"), Works: true,
		})
	}
}

// addFlowTable adds a flow table that is full, or nearly so.
func addFlowTable(o *doctor.Options, plane *lbplane.Plane) {
	used, err := plane.FlowEstimate()
	if err != nil {
		return
	}
	flows := plane.Options().Flows
	if full := lbplane.Fullness(used, flows); full != "" {
		o.Outages = append(o.Outages, doctor.Outage{
			Router: plane.Name(), Check: "lb-room", Command: afterRaising(plane.Name(), "flows in [lb]"), Works: true,
			What: fmt.Sprintf("the flow table for %s flows is %s: new flows may find no room, and move when backends change",
				text.Grouped(uint64(flows)), full),
		})
	}
}

// addDrained adds the VIPs that are drained as a whole: somebody may have forgotten to take them back.
func addDrained(o *doctor.Options, plane *lbplane.Plane) {
	s, err := lb.Load(plane)
	if err != nil {
		return
	}
	for _, v := range s.VIPs {
		if v.Drained {
			o.Outages = append(o.Outages, doctor.Outage{
				Router: plane.Name(), Check: "lb-drained", Works: true, What: "VIP " + v.Service.String() + " is drained: it is not announced",
				Command: fmt.Sprintf("culvert lb undrain --on %s %s", plane.Name(), v.Service),
			})
		}
	}
}

// afterRaising is the command that brings a larger table into force.
func afterRaising(router, key string) string {
	return fmt.Sprintf("culvert reload --on %s    # after raising %s", router, key)
}

// sflowOutage says that a collector of sFlow gets nothing, why, and what shows more: the way to it, or if it refuses who listens there.
// The next process has buffers of its own, which helps if samples cannot be read.
func sflowOutage(router string, p *sflowplane.Process) doctor.Outage {
	o := doctor.Outage{
		Router: router, Check: "sflow", What: "the collector of sFlow, " + p.Collector + ", gets nothing: " + p.Error, Command: wayTo(p.Collector), Works: true,
	}
	_, port, err := net.SplitHostPort(p.Collector)
	switch {
	case p.Unread:
		o.Command = "systemctl restart culvert    # packets flow on meanwhile"
	case err == nil && strings.HasSuffix(p.Error, unix.ECONNREFUSED.Error()):
		o.What += ": nobody listens at this port there"
		o.Command = fmt.Sprintf("ss -lunp 'sport = :%s'    # on the collector", port)
	}
	return o
}

// wayTo shows the way to a collector.
func wayTo(collector string) string {
	host, _, err := net.SplitHostPort(collector)
	if err != nil {
		host = collector
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return "getent ahosts " + host
	}
	return "ip route get " + host
}

// addOutages adds the links of a SCION router that are down, the VIPs that have no backend or are drained, and a collector of sFlow that
// gets nothing. What cannot be read is left out: other findings report that.
func addOutages(o *doctor.Options, inst *datapath.Instance) {
	add := func(check, what, command string) {
		o.Outages = append(o.Outages, doctor.Outage{Router: inst.Name(), Check: check, What: what, Command: command})
	}
	if router := scionplane.Of(inst); scionplane.Routes(inst) && inst.Served() {
		links := router.Config().Links
		states, err := router.LinkStates()
		if err != nil || len(states) != len(links) {
			states = nil
		}
		for n, state := range states {
			if l := links[n]; l.Scope != scionplane.ScopeInternal && !state.Up {
				add("scion-link", fmt.Sprintf("SCION link %s is down by BFD: its packets are answered with an error, and nothing goes to %s", l.Name, l.Remote),
					"ping "+l.Remote.Addr().String())
			}
		}
	}
	if p, err := sflowplane.ProcessOf(inst); err == nil && p != nil && p.Error != "" {
		o.Outages = append(o.Outages, sflowOutage(inst.Name(), p))
	}
	if plane, err := lbplane.View(inst); err == nil {
		addFlowTable(o, plane)
		vips, err := lb.Unserved(plane)
		if err != nil {
			return
		}
		for _, v := range vips {
			add("lb-unserved", "no backend takes new flows of VIP "+v.String(), "culvert lb show --on "+inst.Name())
		}
		addDrained(o, plane)
		if sources, _, err := sourcestate.Of(inst); err == nil {
			o.Outages = append(o.Outages, sourceOutages(inst.Name(), sources)...)
		}
	}
}
