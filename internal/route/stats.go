// SPDX-License-Identifier: Apache-2.0

package route

import (
	"sync/atomic"
	"time"
)

// FamilyStats is about IPv4 or IPv6.
type FamilyStats struct {
	// Routes counts those of the tables local, main and default.
	Routes int
	// BlocksUsed and BlocksTotal are the mirror's; Lost is how many of its entries should have led to a block
	// when there was none.
	BlocksUsed, BlocksTotal, Lost int
	// Current tells whether the programs may believe the mirror; Reason says why not.
	Current bool
	Reason  string
}

// Stats is what Run has to tell.
type Stats struct {
	IPv4, IPv6 FamilyStats
	// HopsUsed counts the next hops in use, Neighbours those of neighbours on connected networks.
	HopsUsed, Neighbours int
	// Dumps counts how often the tables were read, Overruns how often notifications were lost.
	Dumps, Overruns uint64
	// Dumping tells whether the tables are being read, or will be soon.
	Dumping bool
	// DumpTook is how long the latest reading took.
	DumpTook time.Duration
}

// Status makes Stats available to other goroutines.
type Status struct{ latest atomic.Pointer[Stats] }

// Load returns the latest Stats.
func (s *Status) Load() Stats {
	if latest := s.latest.Load(); latest != nil {
		return *latest
	}
	return Stats{}
}

// publish renews the Stats.
func (f *feed) publish() {
	f.published = f.now()
	if f.status == nil {
		return
	}
	s := &Stats{HopsUsed: f.numbers.used, Neighbours: len(f.connected), Dumps: f.dumps, Overruns: f.overruns,
		Dumping: f.dump.active || f.dumpWanted, DumpTook: f.dumpTook}
	for i, one := range []*FamilyStats{&s.IPv4, &s.IPv6} {
		one.Routes = f.ribs[i].count
		if t := f.mirrors[i].table; t != nil {
			one.BlocksUsed, one.BlocksTotal, one.Lost = t.BlocksUsed(), t.BlocksTotal(), t.Lost()
		}
		one.Reason = f.reasons[i]
		one.Current = one.Reason == ""
	}
	f.status.latest.Store(s)
}
