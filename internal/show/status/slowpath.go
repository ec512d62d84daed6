// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"

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

// findSlowPaths looks for processes of SCION routers whose data plane is not in the report, all of them or those with an ID.
func (r *Report) findSlowPaths(router string) error {
	all, err := scionplane.Processes()
	if err != nil {
		return err
	}
	here, err := pins.Here()
	if err != nil {
		return err
	}
	names := netnsNames()
	for _, p := range all {
		if router != "" && p.Router != router || r.has(p) {
			continue
		}
		r.SlowPaths = append(r.SlowPaths, SlowPath{
			Router: p.Router, NetNS: p.NetNS, NetNSName: names[p.NetNS], Here: p.NetNS == here.Inode, PID: p.PID,
		})
	}
	return nil
}

// has tells whether the data plane of a process is in the report.
func (r Report) has(p scionplane.Process) bool {
	for _, router := range r.Routers {
		if router.ID == p.Router && router.NetNS == p.NetNS {
			return true
		}
	}
	return false
}

func (s SlowPath) line() string {
	netns := Router{NetNS: s.NetNS, NetNSName: s.NetNSName, Here: s.Here}.netns()
	return fmt.Sprintf("router %s  netns %s  not attached: process %d has no data plane, so all packets take its slow path: it is starting, "+
		"all its underlay addresses are on loopback, or the data plane was detached (a restart attaches again)", s.Router, netns, s.PID)
}
