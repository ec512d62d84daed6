// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/scionproto/scion/pkg/log"

	"culvert/internal/scion/keyring"
)

// keyPeriod is how often the schedule of the keys is looked at. The programs and the slow path keep to the times by themselves, so
// this only loads the next key where one has ended, and reports.
const keyPeriod = time.Second

// keySwitch follows the schedule of the keys.
type keySwitch struct {
	keys  []keyring.Key
	spans []keyring.Span
	// load follows the schedule in the fast path, and use notes the current key there.
	load func(now time.Time) error
	use  func(key [16]byte) error
	// info and fault write to the log.
	info, fault func(message string, fields ...any)

	// started tells whether the first look was reported.
	started bool
	current int
	ended   []bool
	// failed is the last error that the log has.
	failed string
}

func newKeySwitch(keys []keyring.Key, plane DataPlane) *keySwitch {
	s := &keySwitch{keys: keys, spans: keyring.Spans(keys), info: log.Info, fault: log.Error,
		load: func(time.Time) error { return nil }, use: func([16]byte) error { return nil }}
	if plane != nil {
		s.load, s.use = func(now time.Time) error { return plane.ScheduleKeys(keys, now) }, plane.SetSlowPathKey
	}
	return s
}

// followKeys follows the schedule of the keys, if there is one, until ctx ends.
func (f *fastPath) followKeys(ctx context.Context) error {
	if !f.router.Scheduled() {
		return nil
	}
	s := newKeySwitch(f.router.Keys, f.plane)
	if err := prometheus.Register(s); err != nil {
		return fmt.Errorf("registering the metrics of keys: %w", err)
	}
	defer prometheus.Unregister(s)
	s.look(clock())
	every(ctx, keyPeriod, func() { s.look(clock()) })
	return nil
}

// look does what is due, and reports switches.
func (s *keySwitch) look(now time.Time) {
	current := keyring.Current(s.spans, now)
	ended := make([]bool, len(s.keys))
	for i, k := range s.keys {
		ended[i] = k.Ended(now)
	}
	if s.started && current == s.current && slices.Equal(ended, s.ended) && s.failed == "" {
		return
	}
	err := s.load(now)
	if err == nil && current >= 0 {
		err = s.use(s.keys[current].Secret)
	}
	if err != nil {
		if s.failed != err.Error() {
			s.failed = err.Error()
			s.fault("Forwarding keys do not follow their schedule", "err", err)
		}
		return
	}
	s.failed = ""
	s.report(current, ended, now)
	s.started, s.current, s.ended = true, current, ended
}

// report writes to the log what has changed.
func (s *keySwitch) report(current int, ended []bool, now time.Time) {
	if s.started {
		for i := range ended {
			if ended[i] && !s.ended[i] {
				s.info("Forwarding key has ended", "id", s.keys[i].ID)
			}
		}
	}
	if s.started && current == s.current {
		return
	}
	if current < 0 {
		s.fault("No forwarding key is valid: nothing is forwarded", "ended", keyring.Text(keyring.End(s.spans)))
		return
	}
	fields := []any{"id", s.keys[current].ID}
	if end := s.keys[current].NotAfter; !end.IsZero() {
		fields = append(fields, "not_after", keyring.Text(end))
	}
	if when, next := keyring.NextSwitch(s.spans, now); next >= 0 {
		fields = append(fields, "next", s.keys[next].ID, "next_at", keyring.Text(when))
	}
	message := "Forwarding keys follow a schedule"
	if s.started {
		message = "Forwarding key switched"
		if s.current >= 0 {
			fields = append(fields, "former", s.keys[s.current].ID)
		}
	}
	s.info(message, fields...)
}

var keyRemainingDesc = prometheus.NewDesc("culvert_scion_key_remaining_seconds",
	"Seconds until a forwarding key of the schedule ends: the current one, or the last one. +Inf for a key without an end.",
	[]string{"key"}, nil)

// Describe implements prometheus.Collector.
func (s *keySwitch) Describe(ch chan<- *prometheus.Desc) { ch <- keyRemainingDesc }

// Collect implements prometheus.Collector.
func (s *keySwitch) Collect(ch chan<- prometheus.Metric) {
	now := clock()
	var current time.Time
	if i := keyring.Current(s.spans, now); i >= 0 {
		current = s.spans[i].NotAfter
	} else {
		current = now
	}
	for key, end := range map[string]time.Time{"current": current, "last": keyring.End(s.spans)} {
		left := math.Inf(1)
		if !end.IsZero() {
			left = max(end.Sub(now).Seconds(), 0)
		}
		ch <- prometheus.MustNewConstMetric(keyRemainingDesc, prometheus.GaugeValue, left, key)
	}
}
