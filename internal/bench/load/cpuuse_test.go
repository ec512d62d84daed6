// SPDX-License-Identifier: Apache-2.0

package load

import (
	"maps"
	"strings"
	"testing"
)

func TestParseCPUs(t *testing.T) {
	stat := "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 10 20 30 40 50 60 70 80 90 100\ncpu12 1 0 0 5 0 0 2 0 0 0\nintr 5\n"
	got, err := parseCPUs(stat)
	if err != nil {
		t.Fatal(err)
	}
	// Busy are user, nice, system, irq and softirq; stolen time is left out, guests are in user.
	want := map[int]cpuTime{0: {busy: 190, soft: 70, all: 280}, 12: {busy: 3, soft: 2, all: 8}}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, bad := range []string{"cpu0 1 2 3\n", "cpux 1 2 3 4 5 6 7 8\n", "cpu0 1 2 3 4 5 x 7 8\n"} {
		if _, err := parseCPUs(bad); err == nil || !strings.Contains(err.Error(), "/proc/stat has the line") {
			t.Errorf("%q: error is %v", bad, err)
		}
	}
}
