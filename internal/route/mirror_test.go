// SPDX-License-Identifier: Apache-2.0

package route

import (
	"net/netip"
	"testing"
	"time"

	"culvert/internal/route/lpm"
)

// TestRoomAgain fills a mirror of four blocks, and checks that it is written anew once there is room.
func TestRoomAgain(t *testing.T) {
	now := time.Hour
	m := newMirrorTable(make([]uint32, 1<<16), make([]uint32, 4*256), 32, now, func(netip.Prefix) {})
	var prefixes []netip.Prefix
	for i := range 5 {
		prefixes = append(prefixes, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 1, 0}), 24))
	}
	for i, p := range prefixes {
		if ok := m.Insert(p, 20); ok != (i < 4) {
			t.Fatalf("prefix %d of 4: %v", i+1, ok)
		}
	}
	if m.hasRoomAgain(now) {
		t.Error("a full mirror has room")
	}
	for _, p := range prefixes[:3] {
		m.Remove(p, 0, 0)
	}
	m.tick(now)
	now += lpm.Grace
	m.tick(now)
	if !m.hasRoomAgain(now) {
		t.Error("there is no room with three of four blocks free")
	}
	m.empty(now)
	if m.hasRoomAgain(now) || m.tick(now) {
		t.Error("a mirror that is being emptied is used")
	}
	m.Insert(prefixes[0], 20) // is left to the refill
	now += lpm.Grace
	if !m.tick(now) || m.tick(now) {
		t.Error("tick does not ask exactly once for the mirror to be filled")
	}
	if n := m.table.BlocksUsed(); n != 0 || m.table.Lost() != 0 {
		t.Errorf("%d blocks used, %d lost", n, m.table.Lost())
	}
	if !m.Insert(prefixes[4], 20) || m.hasRoomAgain(now+2*refillGap) {
		t.Error("a mirror that has lost nothing is to be written anew")
	}
}
