// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"

	"culvert/internal/datapath"
	"culvert/internal/host/netdev"
)

// Member is a member of an interface that is a bond.
type Member struct {
	Name string `json:"name"`
	// State is "live" if the bond sends by the member and takes what comes in by it, else "standby" or "down".
	State string `json:"state"`
	// Unknown says that the programs do not know the member or its state, since no process follows the bond: the kernel handles what
	// comes in by it.
	Unknown bool `json:"unknown,omitempty"`
	// NoRoom says that the programs cannot know the member, since its index is beyond what they were loaded for: the kernel handles what
	// comes in by it until the process is started again.
	NoRoom bool `json:"no_room,omitempty"`
	// Queues are the receive queues of the member.
	Queues *netdev.Queues `json:"queues,omitempty"`
}

// describeMember says what the programs know of a member.
func describeMember(inst *datapath.Instance, b *netdev.Bond, m netdev.BondMember) Member {
	room := inst.HasRoom(m.Index)
	return Member{Name: m.Name, State: m.State(), Unknown: room && !inst.KnowsMember(b, m), NoRoom: !room, Queues: netdev.ReadQueues(m.Name)}
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
			i.Members = append(i.Members, describeMember(inst, b, m))
		}
	}
}

// memberQueues are lines with the queues of members.
func (i Interface) memberQueues() (lines []string) {
	for _, m := range i.Members {
		if m.Queues != nil {
			lines = append(lines, "    queues of "+m.Name+": "+m.Queues.String())
		}
	}
	return lines
}

// memberText is the line of the members, "" if there are none.
func (i Interface) memberText() string {
	if i.Members == nil {
		return ""
	}
	var all, beyond []string
	unknown := false
	for _, m := range i.Members {
		all = append(all, m.Name+" "+m.State)
		unknown = unknown || m.Unknown
		if m.NoRoom {
			beyond = append(beyond, m.Name)
		}
	}
	line := "    members: " + strings.Join(all, ", ")
	if beyond != nil {
		line += "  NO ROOM for " + strings.Join(beyond, ", ") + ": the kernel forwards what comes in by it until the process is started again"
	}
	if unknown {
		line += "  CHANGED SINCE: no process has followed, and the kernel forwards what comes in by some of them"
	}
	return line
}
