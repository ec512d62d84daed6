// SPDX-License-Identifier: Apache-2.0

package pulse

import (
	"testing"
	"time"
)

// TestPulse: a loop is alive until it has begun, while it turns, and after it has ended.
func TestPulse(t *testing.T) {
	p := New("the loop", time.Hour)
	late := func() { p.last.Store(int64(time.Since(began) - 2*time.Hour)) }
	began = began.Add(-3 * time.Hour)
	defer func() { began = began.Add(3 * time.Hour) }()
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"before the first turn", func() {}, ""},
		{"after a turn", p.Beat, ""},
		{"two hours after it", late, "the loop has not turned for 2h0m0s"},
		{"after another turn", p.Beat, ""},
		{"late again", late, "the loop has not turned for 2h0m0s"},
		{"at its end", p.End, ""},
	} {
		step.do()
		got := ""
		if err := Alive(nil, New("another", 0), p); err != nil {
			got = err.Error()
		}
		if got != step.want {
			t.Errorf("%s: %q, want %q", step.what, got, step.want)
		}
	}
	var none *Pulse
	none.Beat()
	none.End()
}
