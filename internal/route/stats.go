// SPDX-License-Identifier: Apache-2.0

package route

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// FamilyStats describes the mirror of IPv4 or IPv6.
type FamilyStats struct {
	// Routes counts the routes of the tables local, main and default.
	Routes int
	// BlocksUsed and BlocksTotal count the mirror's blocks. Lost counts its entries that needed a block when none
	// was free.
	BlocksUsed, BlocksTotal, Lost int
	// Current is true if the programs may believe the mirror. If not, Reason says why.
	Current bool
	Reason  string
	// RightAt is when the mirror was last known to equal the kernel's tables, on CLOCK_MONOTONIC; 0 if it never was.
	RightAt time.Duration
}

// stateCurrent is the state of a mirror that the programs may believe.
const stateCurrent = "current"

// states maps the reasons why a mirror may not be believed to the names of its states.
var states = map[string]string{
	"": stateCurrent, reasonOff: "off", reasonReading: "reading", reasonOverrun: "overrun", reasonRules: "rules", reasonPathMTU: "pmtu",
	reasonEmptying: "emptying", reasonBehind: "behind", reasonNotRunning: "stopped",
}

// MirrorStates returns the names of all states of a mirror, sorted.
func MirrorStates() []string { return slices.Sorted(maps.Values(states)) }

// State returns the mirror's state in one word: "current", or a word for Reason.
func (s FamilyStats) State() string { return states[s.Reason] }

// Age returns for how long the mirror has not been known to equal the kernel's tables. It is false if it never was.
func (s FamilyStats) Age() (time.Duration, bool) {
	return max(monotonic()-s.RightAt, 0), s.RightAt != 0
}

// Stats is the state of Run.
type Stats struct {
	IPv4, IPv6 FamilyStats
	// HopsUsed counts the next hops in use. Neighbors counts those that belong to neighbors on connected networks.
	HopsUsed, Neighbors int
	// Dumps counts how often the tables were read, Overruns how often notifications were lost.
	Dumps, Overruns uint64
	// Dumping is true while the tables are being read, or are about to be.
	Dumping bool
	// DumpTook is how long the latest dump took.
	DumpTook time.Duration
}

// Status makes the latest Stats available to other goroutines.
type Status struct{ latest atomic.Pointer[Stats] }

// Load returns the latest Stats, before the first those of a mirror that is not running.
func (s *Status) Load() Stats {
	if latest := s.latest.Load(); latest != nil {
		return *latest
	}
	none := FamilyStats{Reason: reasonNotRunning}
	return Stats{IPv4: none, IPv6: none}
}

// publish stores the current Stats in the Status.
func (f *feed) publish() {
	f.published = f.now()
	if f.status == nil {
		return
	}
	s := &Stats{HopsUsed: f.numbers.used, Neighbors: len(f.connected), Dumps: f.dumps, Overruns: f.overruns,
		Dumping: f.dump.active || f.dumpWanted, DumpTook: f.dumpTook}
	for i, family := range []*FamilyStats{&s.IPv4, &s.IPv6} {
		family.Routes = f.ribs[i].count
		if t := f.mirrors[i].table; t != nil {
			family.BlocksUsed, family.BlocksTotal, family.Lost = t.BlocksUsed(), t.BlocksTotal(), t.Lost()
		}
		family.Reason, family.RightAt = f.reasons[i], f.rightAt[i]
		family.Current = family.Reason == ""
	}
	f.status.latest.Store(s)
}
