// SPDX-License-Identifier: Apache-2.0

package route

import (
	"net/netip"
	"slices"
	"time"

	"culvert/internal/route/lpm"
	"culvert/internal/route/routeplane"
)

// refillGap is the shortest time between two attempts to write the mirror anew because it had lost entries.
const refillGap = time.Minute

// mirrorTable is one family's mirror in the memory that the programs read. Emptying it takes a while, because programs
// may be reading it. Until it is empty, changes are ignored.
type mirrorTable struct {
	table *lpm.Table // nil without a mirror
	// emptying is true from Reset until the blocks can be used again.
	emptying bool
	// emptied is when it was last emptied.
	emptied time.Duration
	// changed is called after the table's answer may have changed for a prefix.
	changed func(netip.Prefix)
}

func newMirrorTable(root, blocks []uint32, addrBits int, now time.Duration, changed func(netip.Prefix)) *mirrorTable {
	if root == nil {
		return &mirrorTable{}
	}
	m := &mirrorTable{table: lpm.New(root, blocks, addrBits), changed: changed}
	if slices.ContainsFunc(root, func(e uint32) bool { return e != 0 }) {
		// This is the mirror of an earlier process.
		m.empty(now)
	}
	return m
}

func (m *mirrorTable) Insert(p netip.Prefix, value uint32) bool {
	if m.table == nil || m.emptying {
		return true
	}
	defer m.changed(p)
	return m.table.Insert(p, value)
}

func (m *mirrorTable) Remove(p netip.Prefix, coverBits int, coverValue uint32) {
	if m.table != nil && !m.emptying {
		m.table.Remove(p, coverBits, coverValue)
		m.changed(p)
	}
}

func (m *mirrorTable) empty(now time.Duration) {
	m.table.Reset()
	m.emptying, m.emptied = true, now
}

// tick lets blocks come back into use. It returns true when emptying has ended, and the table has to be filled.
func (m *mirrorTable) tick(now time.Duration) (refill bool) {
	if m.table == nil {
		return false
	}
	m.table.Tick(now)
	if m.emptying && m.table.BlocksUsed() == 0 {
		m.emptying = false
		return true
	}
	return false
}

// hasRoomAgain reports whether the table has lost entries and now has room for them.
func (m *mirrorTable) hasRoomAgain(now time.Duration) bool {
	return m.table != nil && !m.emptying && m.table.Lost() > 0 && now-m.emptied > refillGap &&
		m.table.BlocksUsed() < m.table.BlocksTotal()*3/4
}

// refill writes all routes into an empty mirror.
func (r *rib) refill() {
	r.insert(r.defaultPrefix(), routeplane.HopNone)
	for p, rec := range r.routes.All() {
		r.insert(p, r.value(p, r.view(rec)))
	}
}

// tickMirrors lets blocks come back into use, and writes mirrors anew that have lost entries.
func (f *feed) tickMirrors() {
	now := f.now()
	for i, m := range f.mirrors {
		if m.hasRoomAgain(now) {
			m.empty(now)
			f.withdraw()
		}
		if m.tick(now) {
			f.ribs[i].refill()
		}
		if f.ribs[i].lost {
			f.ribs[i].lost = false
			f.once("blocks"+familyNames[i], "the routing table is larger than the mirror: packets to some prefixes ask the kernel",
				"family", familyNames[i], "blocks", m.table.BlocksTotal())
		}
	}
	if f.numbers.exhausted {
		f.once("hops", "there are more next hops than the mirror can tell apart: packets to some ask the kernel",
			"limit", routeplane.MaxHops)
	}
}
