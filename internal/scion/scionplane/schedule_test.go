// SPDX-License-Identifier: Apache-2.0

package scionplane_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/scion/keyring"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// TestScheduleKeys follows a schedule of three keys over restarts, and back to a key without one.
func TestScheduleKeys(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	zero := time.Now().Truncate(time.Hour).UTC()
	at := func(hours int) time.Time { return zero.Add(time.Duration(hours) * time.Hour) }
	before, hand := scionplane.Key{9}, scionplane.Key{8}
	keys := []keyring.Key{
		{Secret: scionplane.Key{1}, Span: keyring.Span{NotAfter: at(10)}},
		{Secret: scionplane.Key{2}, Span: keyring.Span{NotBefore: at(4), NotAfter: at(20)}},
		{Secret: scionplane.Key{3}, Span: keyring.Span{NotBefore: at(12)}},
	}
	for i := range keys {
		keys[i].ID = scionplane.KeyID(keys[i].Secret)
	}
	var inst scionplane.Plane
	restart := func() {
		t.Helper()
		inst = scionbed.Attach(t, scionbed.Config(1), "v0")
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// wantKeys wants keys at both indexes, and the schedule with those that are loaded marked.
	wantKeys := func(first, second int, loaded ...bool) {
		t.Helper()
		infos, err := inst.Keys()
		must(err)
		for i, n := range []int{first, second} {
			k := keys[n]
			if len(infos) != 2 || infos[i].Index != i || infos[i].ID != k.ID || !sameTime(infos[i].NotBefore, k.NotBefore) || !sameTime(infos[i].NotAfter, k.NotAfter) {
				t.Errorf("keys %+v, want %+v at index %d", infos, k, i)
			}
		}
		schedule, err := inst.Schedule()
		must(err)
		for i, s := range schedule {
			if s.ID != keys[i].ID || s.Span != keys[i].Span || s.Loaded != loaded[i] {
				t.Errorf("schedule %+v, want %+v, loaded %t", s, keys[i], loaded[i])
			}
		}
		if len(schedule) != len(loaded) {
			t.Errorf("schedule %+v", schedule)
		}
	}
	restart()
	must(inst.UseKey(before))
	must(inst.SetSlowPathKey(before))
	must(inst.AddKey(1, hand))
	inst.Close()

	restart()
	refused := inst.ScheduleKeys(keys, at(0))
	if refused == nil || !strings.Contains(refused.Error(), "key 1 of "+inst.Name()+", "+scionplane.KeyID(hand)+", was loaded by hand and is not in the schedule") {
		t.Errorf("a key that was loaded by hand: %v", refused)
	}
	if infos, err := inst.Keys(); err != nil || len(infos) != 2 || infos[0].ID != scionplane.KeyID(before) {
		t.Errorf("after the refusal: keys %+v, %v", infos, err)
	}
	must(inst.RemoveKey(1))
	must(inst.ScheduleKeys(keys, at(0))) // the key of the process before goes
	must(inst.SetSlowPathKey(keys[0].Secret))
	wantKeys(1, 0, true, true, false)
	must(inst.ScheduleKeys(keys, at(9)))
	wantKeys(1, 0, true, true, false)
	inst.Close()

	restart() // before the process has read its file, the schedule is the former one
	wantKeys(1, 0, true, true, false)
	must(inst.ScheduleKeys(keys, at(10)))
	wantKeys(1, 2, false, true, true)
	keys[1].NotAfter = at(15) // the file has another time now
	must(inst.ScheduleKeys(keys, at(10)))
	wantKeys(1, 2, false, true, true)
	keys[0], keys[1] = keys[1], keys[0]
	keys = keys[:2] // a key goes with its line in the file, and another comes
	keys[1].Secret, keys[1].Span = scionplane.Key{7}, keyring.Span{NotBefore: at(11)}
	keys[1].ID = scionplane.KeyID(keys[1].Secret)
	must(inst.ScheduleKeys(keys, at(10)))
	wantKeys(0, 1, true, true)
	inst.Close()

	restart()
	must(inst.UseKey(before))
	schedule, err := inst.Schedule()
	must(err)
	infos, err := inst.Keys()
	must(err)
	if len(schedule) != 0 || len(infos) != 1 || infos[0].ID != scionplane.KeyID(before) || infos[0].NotBefore != nil || infos[0].NotAfter != nil {
		t.Errorf("without a schedule: keys %+v, schedule %+v", infos, schedule)
	}
	must(inst.SetSlowPathKey(before))
	must(inst.ScheduleKeys(keys, at(10)))
	must(inst.SetSlowPathKey(keys[0].Secret))
	must(inst.UseKey(keys[1].Secret)) // the key of the file is one of the schedule: it has no bounds any more
	if infos, err = inst.Keys(); err != nil || len(infos) != 1 || infos[0].ID != keys[1].ID || infos[0].NotBefore != nil {
		t.Errorf("with a key of the schedule: %+v, %v", infos, err)
	}
	if err := inst.ScheduleKeys(slices.Repeat(keys, 9), at(10)); err == nil {
		t.Error("18 keys were taken")
	}
}

func sameTime(got *time.Time, want time.Time) bool {
	if got == nil {
		return want.IsZero()
	}
	return got.Equal(want)
}
