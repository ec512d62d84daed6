// SPDX-License-Identifier: Apache-2.0

// Package bgpstate has the state of BGP sessions that the process with the sessions passes to commands.
package bgpstate

import (
	"net/netip"
	"slices"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/host/runstate"
)

// Kind is the kind of this state in runstate.
const Kind = "bgp"

// Session is the state of the session with a neighbor.
type Session struct {
	Neighbor netip.Addr `json:"neighbor"`
	ASN      uint32     `json:"asn"`
	// State is the state's name in RFC 4271, in lower case. Since is when the session entered it.
	State string    `json:"state"`
	Since time.Time `json:"since"`
	// Announced are the prefixes that have been announced to the neighbor. BGP does not say whether it uses them.
	Announced []netip.Prefix `json:"announced"`
	// Families are the families that the session carries: FamilyIPv4, FamilyIPv6 or both. A neighbor may have a session
	// for each.
	Families []string `json:"families"`
	// Error says in one line why there is no session, or why prefixes are not announced. It is empty without an error.
	Error string `json:"error,omitempty"`
}

// Values of Session.Families.
const (
	FamilyIPv4 = "ipv4"
	FamilyIPv6 = "ipv6"
)

// Carries reports whether the session announces prefixes of an address's family.
func (s Session) Carries(a netip.Addr) bool {
	if a.Is4() {
		return slices.Contains(s.Families, FamilyIPv4)
	}
	return slices.Contains(s.Families, FamilyIPv6)
}

// Established reports whether the session is established.
func (s Session) Established() bool { return s.State == "established" }

// AnnouncedTo returns the neighbors to which an address is announced.
func AnnouncedTo(sessions []Session, addr netip.Addr) []netip.Addr {
	told := []netip.Addr{}
	for _, s := range sessions {
		if s.Established() && slices.Contains(s.Announced, netip.PrefixFrom(addr, addr.BitLen())) {
			told = append(told, s.Neighbor)
		}
	}
	return told
}

// Of returns the BGP sessions of the process that serves a data plane, none if no process does. known is false until the process
// has written them, or if they cannot be seen from here.
func Of(inst *datapath.Instance) (sessions []Session, known bool, err error) {
	id := inst.ID()
	if id == 0 || !inst.Served() {
		return nil, true, nil
	}
	known, err = runstate.Read(Kind, inst.NetNS(), inst.Name(), id, &sessions)
	if err != nil || !known {
		return nil, false, err
	}
	return sessions, true, nil
}
