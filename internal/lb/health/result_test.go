// SPDX-License-Identifier: Apache-2.0

package health

import (
	"errors"
	"testing"
	"time"
)

// TestJudge adds passed (+) and failed (-) probes, and checks the state after each.
func TestJudge(t *testing.T) {
	tests := []struct {
		name       string
		rise, fall int
		before     State
		probes     string
		states     string // u for unknown, + for up, - for down
	}{
		{"the first answer", 3, 3, Unknown, "+", "+"},
		{"an unknown one falls", 2, 2, Unknown, "--", "u-"},
		{"an unknown one that is late", 2, 3, Unknown, "--+", "uu+"},
		{"a run that is broken", 2, 3, Up, "--+--+---", "++++++++-"},
		{"rises", 3, 2, Down, "++-+++", "-----+"},
		{"at once", 1, 1, Up, "-+-+", "-+-+"},
		{"down and up again", 2, 2, Up, "--++--", "+--++-"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Check{Rise: tt.rise, Fall: tt.fall}
			began := time.Unix(1000, 0)
			j := judge{result: Result{State: tt.before, Since: began}}
			for n, f := range tt.probes {
				before := j.result
				now := time.Unix(int64(2000+n), 0)
				var failure error
				if f == '-' {
					failure = errors.New("refused")
				}
				asked := now.Add(-time.Millisecond)
				changed := j.add(c, failure, asked, now)
				if got := map[State]byte{Unknown: 'u', Up: '+', Down: '-'}[j.result.State]; got != tt.states[n] {
					t.Fatalf("states %s%c after %s, want %s", tt.states[:n], got, tt.probes[:n+1], tt.states[:n+1])
				}
				if changed != (before.State != j.result.State) {
					t.Fatalf("add returns changed %v after %s", changed, tt.probes[:n+1])
				}
				if want := map[bool]time.Time{true: now, false: before.Since}[changed]; !j.result.Since.Equal(want) {
					t.Fatalf("since %v, not %v", j.result.Since, want)
				}
				if rising := f == '+' && j.result.State == Down; j.result.Rising != rising || !j.result.Asked.Equal(asked) {
					t.Fatalf("rising %v at %v, want %v at %v", j.result.Rising, j.result.Asked, rising, asked)
				}
				if j.result.Checks != uint64(n+1) {
					t.Fatalf("%d checks, not %d", j.result.Checks, n+1)
				}
			}
			if j.result.Failures > 0 && j.result.Text != "refused" {
				t.Errorf("the last failure is %q", j.result.Text)
			}
		})
	}
}

func TestPause(t *testing.T) {
	c := Check{Interval: time.Second, Fall: 4}
	for state, want := range map[State]time.Duration{Unknown: time.Second / 4, Up: time.Second / 4, Down: time.Second} {
		j := judge{result: Result{State: state}}
		if got := j.pause(c); got != want {
			t.Errorf("pause of %v between probes of a target that is %v, want %v", got, state, want)
		}
	}
}
