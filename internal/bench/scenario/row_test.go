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

// fakeRow writes down what is done to it.
type fakeRow struct {
	name     string
	log      *[]string
	setupErr error
	runErr   error
	onRun    func()
	sample   Sample
}

func (r *fakeRow) note(what string) { *r.log = append(*r.log, what+" "+r.name) }

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
	if got := s.Missing(); got != 1 {
		t.Errorf("missing %d, want 1", got)
	}
	s.Lost["b"] = 101
	if got := s.Missing(); got != -1 {
		t.Errorf("missing %d, want -1: counted twice", got)
	}
	if got := s.Mpps(); got != 0.6 {
		t.Errorf("%v Mpps, want 0.6", got)
	}
	if got := s.Offered(); got != 1 {
		t.Errorf("%v Mpps offered, want 1", got)
	}
	for _, tc := range []struct {
		lost, others uint64
		want         bool
	}{{399, 0, false}, {400, 0, true}, {401, 0, false}, {403, 3, true}, {404, 3, false}, {399, 3, false}} {
		s.Lost, s.Others = map[string]uint64{"a": tc.lost}, tc.others
		if got := s.Accounted(); got != tc.want {
			t.Errorf("%d of 400 lost, at most %d of others: accounted for %v, want %v", tc.lost, tc.others, got, tc.want)
		}
	}
	if got := (Sample{}).Mpps(); got != 0 {
		t.Errorf("%v Mpps of nothing", got)
	}
}
