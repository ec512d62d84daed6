// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"errors"
	"testing"
	"time"
)

var zero = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

// from and to are bounds in hours after zero, 0 for none.
func span(from, to int) (s Span) {
	if from != 0 {
		s.NotBefore = zero.Add(time.Duration(from) * time.Hour)
	}
	if to != 0 {
		s.NotAfter = zero.Add(time.Duration(to) * time.Hour)
	}
	return s
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name  string
		spans []Span
		index int // of the error
		field string
		want  string // "" for no error
	}{
		{"one without bounds", []Span{span(0, 0)}, 0, "", ""},
		{"two that overlap", []Span{span(0, 10), span(4, 0)}, 0, "", ""},
		{"three in turn", []Span{span(1, 10), span(4, 20), span(12, 30)}, 0, "", ""},
		{"a third that begins when the first ends", []Span{span(1, 10), span(4, 20), span(10, 30)}, 0, "", ""},
		{"in another order", []Span{span(4, 0), span(0, 10)}, 0, "", ""},
		{"two without bounds", []Span{span(0, 0), span(0, 0)}, 0, "", ""},
		{"end before the beginning", []Span{span(0, 30), span(20, 10)}, 1, FieldNotAfter,
			"not_after = 2026-12-01T10:00:00Z is not after not_before = 2026-12-01T20:00:00Z: the key would never be valid"},
		{"end at the beginning", []Span{span(10, 10)}, 0, FieldNotAfter,
			"not_after = 2026-12-01T10:00:00Z is not after not_before = 2026-12-01T10:00:00Z: the key would never be valid"},
		{"gap", []Span{span(0, 10), span(12, 0)}, 1, FieldNotBefore,
			"no key would be valid from 2026-12-01T10:00:00Z until 2026-12-01T12:00:00Z: begin this one earlier, before the other ends"},
		{"gap, in another order", []Span{span(12, 0), span(0, 10)}, 0, FieldNotBefore,
			"no key would be valid from 2026-12-01T10:00:00Z until 2026-12-01T12:00:00Z: begin this one earlier, before the other ends"},
		{"gap behind the longest", []Span{span(1, 20), span(2, 10), span(30, 0)}, 2, FieldNotBefore,
			"no key would be valid from 2026-12-01T20:00:00Z until 2026-12-02T06:00:00Z: begin this one earlier, before the other ends"},
		{"no overlap", []Span{span(0, 10), span(10, 0)}, 1, FieldNotBefore,
			"this key begins at 2026-12-01T10:00:00Z, when the one before it ends, and paths of both are in use then: begin it earlier, by the lifetime of paths (6h)"},
		{"three at a time", []Span{span(0, 30), span(4, 20), span(12, 0)}, 2, FieldNotBefore,
			"3 keys would be valid from 2026-12-01T12:00:00Z on, and a router verifies with 2: let an earlier one end by then (not_after)"},
		{"three without an end", []Span{span(0, 0), span(4, 0), span(12, 0)}, 2, FieldNotBefore,
			"3 keys would be valid from 2026-12-01T12:00:00Z on, and a router verifies with 2: let an earlier one end by then (not_after)"},
		{"three without bounds", []Span{span(0, 0), span(0, 0), span(0, 0)}, 2, FieldNotBefore,
			"3 keys would be valid from the beginning on, and a router verifies with 2: let an earlier one end by then (not_after)"},
	} {
		wantError(t, c.name, Check(c.spans), c.index, c.field, c.want)
	}
}

func wantError(t *testing.T, name string, err error, index int, field, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return
	}
	if bad := new(SpanError); !errors.As(err, &bad) || bad.Index != index || bad.Field != field || err.Error() != want {
		t.Errorf("%s: %#v, want %d, %s: %s", name, err, index, field, want)
	}
}

func TestCheckNow(t *testing.T) {
	two := []Span{span(1, 10), span(4, 20)}
	for _, c := range []struct {
		name  string
		hour  int
		index int
		field string
		want  string
	}{
		{"before all", 0, 0, FieldNotBefore, "no key is valid before 2026-12-01T01:00:00Z: add the one in use, with a not_after behind that"},
		{"at the first", 1, 0, "", ""},
		{"at both", 5, 0, "", ""},
		{"at the last", 19, 0, "", ""},
		{"past keys only", 20, 1, FieldNotAfter, "all keys have ended, the last one at 2026-12-01T20:00:00Z: add one that is valid now"},
	} {
		wantError(t, c.name, CheckNow(two, zero.Add(time.Duration(c.hour)*time.Hour)), c.index, c.field, c.want)
	}
}

func TestCurrent(t *testing.T) {
	spans := []Span{span(0, 10), span(4, 20), span(12, 0)}
	for _, c := range []struct{ hour, current, next, nextHour int }{
		{-5, 0, 1, 4}, {3, 0, 1, 4}, {4, 1, 2, 12}, {9, 1, 2, 12}, {10, 1, 2, 12}, {12, 2, -1, 0}, {99, 2, -1, 0},
	} {
		at := zero.Add(time.Duration(c.hour) * time.Hour)
		when, next := NextSwitch(spans, at)
		if got := Current(spans, at); got != c.current || next != c.next || next >= 0 && !when.Equal(span(c.nextHour, 0).NotBefore) {
			t.Errorf("hour %d: current %d, next %d at %v, want %+v", c.hour, got, next, when, c)
		}
	}
	if got := Current(spans[:2], zero.Add(20*time.Hour)); got != -1 {
		t.Errorf("behind the last: current %d", got)
	}
	if end := End(spans); !end.IsZero() {
		t.Errorf("a key without an end: ends at %v", end)
	}
	if end := End(spans[:2]); !end.Equal(span(0, 20).NotAfter) {
		t.Errorf("ends at %v", end)
	}
}

func TestShortOverlap(t *testing.T) {
	spans := []Span{span(1, 10), span(4, 20), span(12, 30)}
	if i, overlap := ShortOverlap(spans, zero); i != -1 {
		t.Errorf("key %d overlaps by %s", i, overlap)
	}
	spans[1].NotBefore = spans[1].NotBefore.Add(time.Second)
	if i, overlap := ShortOverlap(spans, zero); i != 1 || overlap != 6*time.Hour-time.Second {
		t.Errorf("key %d, %s", i, overlap)
	}
	if i, _ := ShortOverlap(spans, spans[0].NotAfter); i != -1 {
		t.Errorf("key %d, whose beginning has passed", i)
	}
}
