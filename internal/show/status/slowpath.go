// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"slices"

	"culvert/internal/host/netnsname"
	"culvert/internal/host/pins"
	"culvert/internal/scion/scionplane"
)

// SlowPath is a process that runs a SCION router without a data plane: one that starts, one whose underlay addresses are all on
// loopback, or one whose data plane was detached.
type SlowPath struct {
	Router    string `json:"router"`
	NetNS     uint32 `json:"netns"`
	NetNSName string `json:"netns_name,omitempty"`
	Here      bool   `json:"here"`
	PID       int    `json:"pid"`
}

// plane is where a data plane is, and what it is called.
type plane struct {
	name  string
	netns uint32
}

// findSlowPaths looks for processes of SCION routers that have no data plane, all of them or those with an ID.
func (r *Report) findSlowPaths(router string) error {
	all, err := scionplane.Processes()
	if err != nil {
		return err
	}
	here, err := pins.Here()
	if err != nil {
		return err
	}
	r.SlowPaths = r.withoutPlane(all, router, here.Inode)
	names := netnsname.All()
	for n := range r.SlowPaths {
		r.SlowPaths[n].NetNSName = names[r.SlowPaths[n].NetNS]
	}
	return nil
}

// withoutPlane returns the processes that have no data plane on this machine, whether the report describes it or not. As with data planes,
// an ID that is in this network namespace means that one only.
func (r *Report) withoutPlane(all []scionplane.Process, router string, here uint32) (found []SlowPath) {
	anyHere := slices.Contains(r.planes, plane{router, here}) || slices.ContainsFunc(all, func(p scionplane.Process) bool {
		return p.Router == router && p.NetNS == here
	})
	for _, p := range all {
		switch isHere := p.NetNS == here; {
		case slices.Contains(r.planes, plane{p.Router, p.NetNS}):
		case router != "" && (p.Router != router || anyHere && !isHere):
		default:
			found = append(found, SlowPath{Router: p.Router, NetNS: p.NetNS, Here: isHere, PID: p.PID})
		}
	}
	return found
}

func (s SlowPath) line() string {
	netns := Router{NetNS: s.NetNS, NetNSName: s.NetNSName, Here: s.Here}.netns()
	return fmt.Sprintf("router %s  netns %s  not attached: process %d has no data plane, so all packets take its slow path: it is starting, "+
		"all its underlay addresses are on loopback, or the data plane was detached (a restart attaches again)", s.Router, netns, s.PID)
}
