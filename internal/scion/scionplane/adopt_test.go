// SPDX-License-Identifier: Apache-2.0

package scionplane_test

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// manyIDs returns the interface IDs 1 to n.
func manyIDs(n int) []uint16 {
	ids := make([]uint16, n)
	for i := range ids {
		ids[i] = uint16(i + 1)
	}
	return ids
}

// TestAdopt attaches again with other configurations. Links keep their counters, next hops and states by their names, and
// keys stay.
func TestAdopt(t *testing.T) {
	tests := map[string][]uint16{
		"same":                     {1, 2},
		"more links":               {1, 2, 3, 4, 5},
		"renumbered":               {9, 2, 7, 1},
		"more links than counters": manyIDs(3 * scionplane.MinCounters),
		"a link in use is removed": {2},
		"other links altogether":   {5, 6},
	}
	for name, ids := range tests {
		t.Run(name, func(t *testing.T) {
			testbed.InNamespace(t)
			v0 := testbed.AddVeth(t, "v0", "v1")
			frame := scionbed.TransitFrame(t, v0, scionbed.Key)
			first := scionbed.Config(1, 2)
			inst := scionbed.Attach(t, first, "v0")
			scionbed.Open(t, inst, v0)
			if err := inst.AddKey(1, scionplane.Key{4}); err != nil {
				t.Fatal(err)
			}
			testbed.Feed(t, inst, frame, "v0", 5)
			keys, err := inst.Keys()
			if err != nil {
				t.Fatal(err)
			}
			inst.Close()

			c := scionbed.Config(ids...)
			inst = scionbed.Attach(t, c, "v0")
			if !inst.Adopted() {
				t.Error("not adopted")
			}
			if now, err := inst.Keys(); err != nil || !slices.Equal(now, keys) {
				t.Errorf("keys %v, %v, were %v", now, err, keys)
			}
			// Packets are still forwarded from link 1 to link 2 if both remain.
			testbed.Feed(t, inst, frame, "v0", 2)
			want := map[string]uint64{scionbed.Forwarded: 5}
			wantIn, wantOut := make(map[string]uint64), make(map[string]uint64)
			for _, l := range c.Links {
				wantIn[l.Name], wantOut[l.Name] = 0, 0
			}
			if slices.Contains(ids, 1) {
				wantIn["1"] = 5
			}
			if slices.Contains(ids, 2) {
				wantOut["2"] = 5
			}
			if slices.Contains(ids, 1) && slices.Contains(ids, 2) {
				wantIn["1"], wantOut["2"] = 7, 7
				want[scionbed.Forwarded] = 7
			} else {
				want["pass other"] = 2
			}
			_, got, _ := testbed.Counted(t, inst, "v0")
			if !maps.Equal(got, want) {
				t.Errorf("packets %v, want %v", got, want)
			}
			in, out := scionbed.LinkTraffic(t, inst)
			if !maps.Equal(in, wantIn) || !maps.Equal(out, wantOut) {
				t.Errorf("links in %v, out %v, want %v and %v", in, out, wantIn, wantOut)
			}
			inst.Close()

			// With the first configuration again, link 2 still has its counters.
			inst = scionbed.Attach(t, first, "v0")
			if now := wantOut["2"]; now == 0 {
				wantOut["2"] = 5
			}
			if _, out := scionbed.LinkTraffic(t, inst); out["2"] != wantOut["2"] {
				t.Errorf("link 2 has sent %d, want %d", out["2"], wantOut["2"])
			}
		})
	}
}

// TestMovedLinkIsClosed changes the addresses of a link, which loses its next hop and its state.
func TestMovedLinkIsClosed(t *testing.T) {
	testbed.InNamespace(t)
	v0 := testbed.AddVeth(t, "v0", "v1")
	inst := scionbed.Attach(t, scionbed.Config(1, 2), "v0")
	scionbed.Open(t, inst, v0)
	inst.Close()
	moved := scionbed.Config(1, 2)
	moved.Links[2].Remote = scionbed.Config(8).Links[1].Remote
	inst = scionbed.Attach(t, moved, "v0")
	states, err := inst.LinkStates()
	if err != nil {
		t.Fatal(err)
	}
	if states[2].Up || states[2].NextHop.IfIndex != 0 {
		t.Errorf("link 2 is %+v", states[2])
	}
	if !states[0].Up {
		t.Error("the internal link is down")
	}
}

func TestKeys(t *testing.T) {
	testbed.InNamespace(t)
	v0 := testbed.AddVeth(t, "v0", "v1")
	inst := scionbed.Attach(t, scionbed.Config(1, 2), "v0")
	scionbed.Open(t, inst, v0) // with scionbed.Key at 0
	other := scionplane.Key{7}
	fail := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", what, err, want)
		}
	}
	indexes := func(want ...int) (ids []string) {
		t.Helper()
		keys, err := inst.Keys()
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, k := range keys {
			got = append(got, k.Index)
			ids = append(ids, k.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("keys at %v, want %v", got, want)
		}
		return ids
	}
	forwards := func(key scionplane.Key, want bool) {
		t.Helper()
		_, before, _ := testbed.Counted(t, inst, "v0")
		testbed.Feed(t, inst, scionbed.TransitFrame(t, v0, key), "v0", 1)
		_, after, _ := testbed.Counted(t, inst, "v0")
		reason := "punt scion-mac"
		if want {
			reason = scionbed.Forwarded
		}
		if after[reason] != before[reason]+1 {
			t.Errorf("key %x: counters %v, then %v, want one more %s", key, before, after, reason)
		}
	}
	fail("index below", inst.AddKey(-1, other), "use 0 or 1")
	fail("index above", inst.AddKey(scionplane.MaxKeys, other), "use 0 or 1")
	fail("index above, remove", inst.RemoveKey(scionplane.MaxKeys), "use 0 or 1")
	fail("occupied", inst.AddKey(0, other), "remove it first, or use index 1")
	fail("no key", inst.RemoveKey(1), "no key 1")
	if err := inst.AddKey(0, scionbed.Key); err != nil {
		t.Errorf("the same key again: %v", err)
	}
	indexes(0)
	forwards(scionbed.Key, true)
	forwards(other, false)

	if err := inst.AddKey(1, other); err != nil {
		t.Fatal(err)
	}
	ids := indexes(0, 1)
	if ids[0] == ids[1] {
		t.Errorf("two keys have the ID %s", ids[0])
	}
	forwards(scionbed.Key, true)
	forwards(other, true)

	if err := inst.RemoveKey(0); err != nil {
		t.Fatal(err)
	}
	fail("removed before", inst.RemoveKey(0), "no key 0")
	indexes(1)
	forwards(scionbed.Key, false)
	forwards(other, true)

	if err := inst.AddKey(0, other); err != nil {
		t.Fatal(err)
	}
	if ids := indexes(0, 1); ids[0] != ids[1] {
		t.Errorf("one key has the IDs %v", ids)
	}
}

// TestDeadHopsAreForgotten attaches again after an interface was deleted and made again under another index. Links and
// hosts lose next hops by the old index.
func TestDeadHopsAreForgotten(t *testing.T) {
	testbed.InNamespace(t)
	v0, v2 := testbed.AddVeth(t, "v0", "v1"), testbed.AddVeth(t, "v2", "v3")
	inst := scionbed.Attach(t, scionbed.Config(1, 2), "v0", "v2")
	scionbed.Open(t, inst, v2)
	dead, alive, kernel := netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("10.0.0.8"), netip.MustParseAddr("10.0.0.9")
	for addr, hop := range map[netip.Addr]scionplane.NextHop{
		dead: {IfIndex: v2.Index, DstMAC: [6]byte{2, 0, 0, 0, 0, 7}}, alive: {IfIndex: v0.Index, DstMAC: [6]byte{2, 0, 0, 0, 0, 8}}, kernel: {},
	} {
		if err := inst.SetHost(addr, hop); err != nil {
			t.Fatal(err)
		}
	}
	inst.Close()
	testbed.DeleteDevice(t, "v2")
	testbed.AddVeth(t, "v2", "v3")
	inst = scionbed.Attach(t, scionbed.Config(1, 2), "v0", "v2")
	if !inst.Adopted() {
		t.Fatal("not adopted")
	}
	hosts, err := inst.Hosts()
	if err != nil {
		t.Fatal(err)
	}
	got := slices.SortedFunc(maps.Keys(hosts), netip.Addr.Compare)
	if want := []netip.Addr{alive, kernel}; !slices.Equal(got, want) {
		t.Errorf("the hosts are %v, want %v", got, want)
	}
	states, err := inst.LinkStates()
	if err != nil {
		t.Fatal(err)
	}
	for n, s := range states {
		if s.NextHop.IfIndex == v2.Index {
			t.Errorf("link %d still leads to the interface that is gone", n)
		}
	}
}
