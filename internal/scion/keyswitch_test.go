// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/scion/keyring"
)

// TestKeySwitch follows three keys of a schedule. Each switch and each end is reported once, and the fast path is written only then.
func TestKeySwitch(t *testing.T) {
	zero := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	at := func(hours int) time.Time { return zero.Add(time.Duration(hours) * time.Hour) }
	keys := []keyring.Key{
		{ID: "aa", Secret: [16]byte{1}, Span: keyring.Span{NotAfter: at(10)}},
		{ID: "bb", Secret: [16]byte{2}, Span: keyring.Span{NotBefore: at(4), NotAfter: at(20)}},
		{ID: "cc", Secret: [16]byte{3}, Span: keyring.Span{NotBefore: at(12), NotAfter: at(30)}},
	}
	var said, did []string
	say := func(message string, fields ...any) {
		said = append(said, strings.TrimSpace(message+" "+fmt.Sprintln(fields...)))
	}
	var fault error
	s := newKeySwitch(keys, nil)
	s.info, s.fault = say, say
	s.load = func(now time.Time) error { did = append(did, fmt.Sprint("load ", now.Sub(zero).Hours())); return fault }
	s.use = func(key [16]byte) error { did = append(did, fmt.Sprint("use ", key[0])); return nil }
	for _, c := range []struct {
		hour      int
		fault     error
		said, did []string
	}{
		{0, nil, []string{"Forwarding keys follow a schedule id aa not_after 2026-12-01T10:00:00Z next bb next_at 2026-12-01T04:00:00Z"}, []string{"load 0", "use 1"}},
		{1, nil, nil, nil},
		{4, nil, []string{"Forwarding key switched id bb not_after 2026-12-01T20:00:00Z next cc next_at 2026-12-01T12:00:00Z former aa"}, []string{"load 4", "use 2"}},
		{5, nil, nil, nil},
		{10, errors.New("no"), []string{"Forwarding keys do not follow their schedule err no"}, []string{"load 10"}},
		{11, errors.New("no"), nil, []string{"load 11"}},
		{11, nil, []string{"Forwarding key has ended id aa"}, []string{"load 11", "use 2"}},
		{11, nil, nil, nil},
		{29, nil, []string{"Forwarding key has ended id bb", "Forwarding key switched id cc not_after 2026-12-02T06:00:00Z former bb"}, []string{"load 29", "use 3"}},
		{30, nil, []string{"Forwarding key has ended id cc", "No forwarding key is valid: nothing is forwarded ended 2026-12-02T06:00:00Z"}, []string{"load 30"}},
		{31, nil, nil, nil},
	} {
		said, did, fault = nil, nil, c.fault
		s.look(at(c.hour))
		if !slices.Equal(said, c.said) || !slices.Equal(did, c.did) {
			t.Errorf("hour %d: said %q, did %q, want %q and %q", c.hour, said, did, c.said, c.did)
		}
	}
}

// TestKeyRemaining scrapes the time that is left.
func TestKeyRemaining(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	setClock(t, now)
	of := func(keys ...keyring.Key) *keySwitch { return newKeySwitch(keys, nil) }
	first := keyring.Key{Span: keyring.Span{NotAfter: now.Add(time.Hour)}}
	for name, c := range map[string]struct {
		s             *keySwitch
		current, last float64
	}{
		"two":               {of(first, keyring.Key{Span: keyring.Span{NotBefore: now.Add(time.Minute), NotAfter: now.Add(2 * time.Hour)}}), 3600, 7200},
		"without end":       {of(first, keyring.Key{Span: keyring.Span{NotBefore: now.Add(time.Minute)}}), 3600, math.Inf(1)},
		"all of them ended": {of(keyring.Key{Span: keyring.Span{NotAfter: now}}), 0, 0},
	} {
		registry := prometheus.NewPedanticRegistry()
		check(t, registry.Register(c.s))
		families, err := registry.Gather()
		check(t, err)
		got := map[string]float64{}
		for _, m := range families[0].GetMetric() {
			got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
		if len(families) != 1 || families[0].GetName() != "culvert_scion_key_remaining_seconds" || !maps.Equal(got, map[string]float64{"current": c.current, "last": c.last}) {
			t.Errorf("%s: %v, want %+v", name, families, c)
		}
	}
}
