// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"
)

// fakeRow logs the calls of its methods.
type fakeRow struct {
	name     string
	log      *[]string
	setupErr error
	runErr   error
	onRun    func()
	sample   Sample
}

func (r *fakeRow) note(call string) { *r.log = append(*r.log, call+" "+r.name) }

func (r *fakeRow) Name() string { return r.name }

func (r *fakeRow) Setup(context.Context) error {
	r.note("setup")
	return r.setupErr
}

func (r *fakeRow) Run(context.Context, time.Duration) (Sample, error) {
	r.note("run")
	if r.onRun != nil {
		r.onRun()
	}
	return r.sample, r.runErr
}

func (r *fakeRow) Teardown() error {
	r.note("down")
	return nil
}

func TestRowsAreInterleavedAndTakenDown(t *testing.T) {
	broken := errors.New("broken")
	ctx, cancel := context.WithCancel(context.Background())
	tests := []struct {
		name   string
		change func(a, b *fakeRow)
		want   []string
		err    error
	}{
		{
			"two rounds and one to warm up", func(*fakeRow, *fakeRow) {},
			[]string{"setup a", "setup b", "run a", "run b", "run b", "run a", "run a", "run b", "down b", "down a"}, nil,
		},
		{
			"setup fails", func(_, b *fakeRow) { b.setupErr = broken },
			[]string{"setup a", "setup b", "down b", "down a"}, broken,
		},
		{
			"first setup fails", func(a, _ *fakeRow) { a.setupErr = broken },
			[]string{"setup a", "down a"}, broken,
		},
		{
			"run fails", func(_, b *fakeRow) { b.runErr = broken },
			[]string{"setup a", "setup b", "run a", "run b", "down b", "down a"}, broken,
		},
		{
			"interrupted", func(a, _ *fakeRow) { a.onRun = cancel },
			[]string{"setup a", "setup b", "run a", "down b", "down a"}, context.Canceled,
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var log []string
			a, b := &fakeRow{name: "a", log: &log}, &fakeRow{name: "b", log: &log}
			tc.change(a, b)
			samples, err := RunRows(ctx, []Row{a, b}, RunOptions{Rounds: 2, Progress: io.Discard})
			if !errors.Is(err, tc.err) || tc.err == nil && err != nil {
				t.Errorf("error %v, want %v", err, tc.err)
			}
			if !slices.Equal(log, tc.want) {
				t.Errorf("did %q\nwant %q", log, tc.want)
			}
			if err == nil && (len(samples[0]) != 2 || len(samples[1]) != 2) {
				t.Errorf("samples %v: the warm-up counts, or a round is missing", samples)
			}
		})
	}
}

func TestSampleAccounts(t *testing.T) {
	s := Sample{Sent: 1000, Received: 600, Lost: map[string]uint64{"a": 300, "b": 99}, Elapsed: time.Millisecond}
	if got := s.Mpps(); got != 0.6 {
		t.Errorf("%v Mpps, want 0.6", got)
	}
	if got := s.Offered(); got != 1 {
		t.Errorf("%v Mpps offered, want 1", got)
	}
	for _, tc := range []struct {
		name      string
		lost      map[string]uint64
		others    uint64
		missing   int64
		accounted bool
	}{
		{"a packet is missing", map[string]uint64{"a": 300, "b": 99}, 0, 1, false},
		{"all packets are counted", map[string]uint64{"a": 300, "b": 100}, 0, 0, true},
		{"a packet is counted twice", map[string]uint64{"a": 300, "b": 101}, 0, -1, false},
		{"other traffic is lost", map[string]uint64{"a": 403}, 3, -3, true},
		{"more is lost than other traffic explains", map[string]uint64{"a": 404}, 3, -4, false},
		{"a packet is missing in spite of other traffic", map[string]uint64{"a": 399}, 3, 1, false},
	} {
		s.Lost, s.Others = tc.lost, tc.others
		if s.Missing() != tc.missing || s.Accounted() != tc.accounted {
			t.Errorf("%s: missing %d, accounted for %t, want %d and %t", tc.name, s.Missing(), s.Accounted(), tc.missing, tc.accounted)
		}
	}
	if got := (Sample{}).Mpps(); got != 0 {
		t.Errorf("%v Mpps of nothing", got)
	}
}
