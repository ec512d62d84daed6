// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"

	"culvert/internal/datapath"
)

// Member is a member of an interface that is a bond.
type Member struct {
	Name string `json:"name"`
	// State is "live" if the bond sends by the member and takes what comes in by it, else "standby" or "down".
	State string `json:"state"`
	// Unknown says that the programs do not know the member or its state, since no process follows the bond: the kernel handles what
	// comes in by it.
	Unknown bool `json:"unknown,omitempty"`
}

// describeBonds adds the members to interfaces that are bonds.
func describeBonds(interfaces []Interface, inst *datapath.Instance) {
	bonds := inst.Bonds()
	for n := range interfaces {
		i := &interfaces[n]
		b := bonds[i.Interface]
		if b == nil || !i.Attached {
			continue
		}
		for _, m := range b.Members {
			i.Members = append(i.Members, Member{Name: m.Name, State: m.State(), Unknown: !inst.KnowsMember(b, m)})
		}
	}
}

// memberText is the line of the members, "" if there are none.
func (i Interface) memberText() string {
	if i.Members == nil {
		return ""
	}
	var all []string
	unknown := false
	for _, m := range i.Members {
		all = append(all, m.Name+" "+m.State)
		unknown = unknown || m.Unknown
	}
	line := "    members: " + strings.Join(all, ", ")
	if unknown {
		line += "  CHANGED SINCE: no process has followed, and the kernel forwards what comes in by some of them"
	}
	return line
}
