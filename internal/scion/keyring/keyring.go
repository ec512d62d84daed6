// SPDX-License-Identifier: Apache-2.0

// Package keyring has the forwarding keys of a SCION router with the times at which they are valid. It computes the MACs of hop
// fields for the reference's data plane, which by itself knows one key that never changes.
package keyring

import (
	"fmt"
	"slices"
	"time"
)

// MostValid is how many keys may be valid at a time. The programs of the fast path verify with as many.
const MostValid = 2

// Lifetime is how long the paths live that the reference's control service makes, unless it is told otherwise: its hop fields
// expire after 6 hours.
const Lifetime = 6 * time.Hour

// LifetimeText is Lifetime in errors.
const LifetimeText = "6h"

// Span is when a key is valid: from NotBefore on, until NotAfter. A zero time is no bound.
type Span struct{ NotBefore, NotAfter time.Time }

// Valid tells whether the key is valid at a time.
func (s Span) Valid(at time.Time) bool { return !at.Before(s.NotBefore) && !s.Ended(at) }

// Ended tells whether the key is not valid any more.
func (s Span) Ended(at time.Time) bool { return !s.NotAfter.IsZero() && !at.Before(s.NotAfter) }

// String returns the times as text.
func (s Span) String() string {
	until := "without an end"
	if !s.NotAfter.IsZero() {
		until = "until " + Text(s.NotAfter)
	}
	return "from " + orAlways(s.NotBefore) + " " + until
}

// Key is a forwarding key, as derived from a master key.
type Key struct {
	Span
	// ID identifies the key and does not reveal it.
	ID     string
	Secret [16]byte
}

// Spans returns the times of keys.
func Spans(keys []Key) []Span {
	spans := make([]Span, len(keys))
	for i, k := range keys {
		spans[i] = k.Span
	}
	return spans
}

// Sort puts keys in the order in which they begin to be valid.
func Sort(keys []Key) {
	slices.SortStableFunc(keys, func(a, b Key) int { return a.NotBefore.Compare(b.NotBefore) })
}

// Current returns the index of the key with which hop fields are made at a time, the valid one that began last. It is -1 if no
// key is valid.
func Current(spans []Span, at time.Time) int {
	current := -1
	for i, s := range spans {
		if s.Valid(at) && (current < 0 || !s.NotBefore.Before(spans[current].NotBefore)) {
			current = i
		}
	}
	return current
}

// NextSwitch returns when another key becomes the current one, and its index, -1 if no key begins after at.
func NextSwitch(spans []Span, at time.Time) (when time.Time, next int) {
	next = -1
	for i, s := range spans {
		if s.NotBefore.After(at) && (next < 0 || s.NotBefore.Before(when)) {
			when, next = s.NotBefore, i
		}
	}
	return when, next
}

// End returns when the last of the keys ends, the zero time if one has no end.
func End(spans []Span) (end time.Time) {
	for _, s := range spans {
		if s.NotAfter.IsZero() {
			return time.Time{}
		}
		if s.NotAfter.After(end) {
			end = s.NotAfter
		}
	}
	return end
}

// The fields of a span, in errors.
const (
	FieldNotBefore = "not_before"
	FieldNotAfter  = "not_after"
)

// SpanError is a fault of a schedule. Index and Field say which span and which of its times is wrong.
type SpanError struct {
	Index int
	Field string
	text  string
}

func (e *SpanError) Error() string { return e.text }

func badSpan(index int, field, format string, args ...any) error {
	return &SpanError{Index: index, Field: field, text: fmt.Sprintf(format, args...)}
}

// Text returns a time as it is written in a configuration.
func Text(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// Check returns an error, which is a *SpanError, if keys with these times do not follow each other as a router needs it: always
// one that is valid, at most MostValid, and each one overlapping the one before it.
func Check(spans []Span) error {
	for i, s := range spans {
		if !s.NotAfter.IsZero() && !s.NotAfter.After(s.NotBefore) {
			return badSpan(i, FieldNotAfter, "not_after = %s is not after not_before = %s: the key would never be valid",
				Text(s.NotAfter), Text(s.NotBefore))
		}
	}
	order := make([]int, len(spans))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return spans[a].NotBefore.Compare(spans[b].NotBefore) })
	for n, i := range order[min(1, len(order)):] {
		begin := spans[i].NotBefore
		before := make([]Span, 0, len(spans))
		valid := 1
		for _, j := range order[:n+1] {
			before = append(before, spans[j])
			if spans[j].Valid(begin) {
				valid++
			}
		}
		end := End(before)
		switch {
		case valid > MostValid:
			return badSpan(i, FieldNotBefore, "%d keys would be valid from %s on, and a router verifies with %d: let an earlier one end by then (not_after)",
				valid, orAlways(begin), MostValid)
		case !end.IsZero() && end.Equal(begin):
			return badSpan(i, FieldNotBefore, "this key begins at %s, when the one before it ends, and paths of both are in use then: "+
				"begin it earlier, by the lifetime of paths (%s)", Text(begin), LifetimeText)
		case !end.IsZero() && end.Before(begin):
			return badSpan(i, FieldNotBefore, "no key would be valid from %s until %s: begin this one earlier, before the other ends",
				Text(end), Text(begin))
		}
	}
	return nil
}

func orAlways(t time.Time) string {
	if t.IsZero() {
		return "the beginning"
	}
	return Text(t)
}

// CheckNow returns an error, which is a *SpanError, if none of the keys is valid at a time. Spans is not empty.
func CheckNow(spans []Span, at time.Time) error {
	if Current(spans, at) >= 0 {
		return nil
	}
	if when, next := NextSwitch(spans, at); next >= 0 {
		return badSpan(next, FieldNotBefore, "no key is valid before %s: add the one in use, with a not_after behind that", Text(when))
	}
	end := End(spans)
	last := slices.IndexFunc(spans, func(s Span) bool { return s.NotAfter.Equal(end) })
	return badSpan(last, FieldNotAfter, "all keys have ended, the last one at %s: add one that is valid now", Text(end))
}

// ShortOverlap returns the index of the first key, from at on, that begins less than Lifetime before the key before it ends, and
// by how much they overlap. It is -1 if there is none. Spans are in order, and Check has no error for them.
func ShortOverlap(spans []Span, at time.Time) (index int, overlap time.Duration) {
	for i := 1; i < len(spans); i++ {
		end := End(spans[:i])
		if end.IsZero() || !end.After(at) {
			continue
		}
		if overlap := end.Sub(spans[i].NotBefore); overlap < Lifetime {
			return i, overlap
		}
	}
	return -1, 0
}

// Rounded returns a duration in its two largest units: 4d3h, 2h5m, 3m20s.
func Rounded(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return d.Round(time.Second).String()
	}
}
