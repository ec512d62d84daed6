// SPDX-License-Identifier: Apache-2.0

// Package bgpstate is what the process that has BGP sessions tells commands of them.
package bgpstate

import (
	"net/netip"
	"slices"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/host/runstate"
)

// Kind is what runstate has it as.
const Kind = "bgp"

// Session is the one with a neighbor.
type Session struct {
	Neighbor netip.Addr `json:"neighbor"`
	ASN      uint32     `json:"asn"`
	// State is RFC 4271's name in lower case.
	State string    `json:"state"`
	Since time.Time `json:"since"`
	// Announced are the prefixes that it has been told of, and has not refused with the session. Whether it uses them BGP
	// does not tell.
	Announced []netip.Prefix `json:"announced"`
	// Families are those that it carries, FamilyIPv4 and FamilyIPv6: with a session of each one may be for its own alone.
	Families []string `json:"families"`
	// Error says why there is no session, or why prefixes are not announced. One line, or empty.
	Error string `json:"error,omitempty"`
}

// Families of a Session.
const (
	FamilyIPv4 = "ipv4"
	FamilyIPv6 = "ipv6"
)

// Carries tells whether prefixes of an address's family are announced over it.
func (s Session) Carries(a netip.Addr) bool {
	if a.Is4() {
		return slices.Contains(s.Families, FamilyIPv4)
	}
	return slices.Contains(s.Families, FamilyIPv6)
}

// Established tells whether there is a session.
func (s Session) Established() bool { return s.State == "established" }

// Of returns the BGP sessions of the process that serves a data plane, none if there is none; known is false where that
// process has told nothing that can be seen here.
func Of(inst *datapath.Instance) (sessions []Session, known bool, err error) {
	id := inst.ID()
	if id == 0 || !inst.Served() {
		return nil, true, nil
	}
	return Read(inst.NetNS(), inst.Name(), id)
}

// Read returns the sessions of the process that serves a data plane. They are not known while it has told nothing.
func Read(netns uint32, name string, plane uint64) (sessions []Session, known bool, err error) {
	known, err = runstate.Read(Kind, netns, name, plane, &sessions)
	if err != nil || !known {
		return nil, false, err
	}
	return sessions, true, nil
}
