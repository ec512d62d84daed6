// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"culvert/internal/bench/load"
)

func TestParseSizes(t *testing.T) {
	got, err := ParseSizes([]string{"60", load.IMIXWord, "1514", Shortest})
	if want := []FrameLength{60, IMIX, 1514, 134}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, error %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", "41", "1515", "-60", "64B", "jumbo"} {
		if _, err := ParseSizes([]string{"138", bad}); !errors.Is(err, load.ErrUnknown) || !strings.Contains(err.Error(), "42 to 1514") {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}

// Of twelve SCION frames of an IMIX seven are as short as their headers allow, four have 590 bytes and one has 1514.
func TestMixedSCION(t *testing.T) {
	router, err := benchRouter()
	if err != nil {
		t.Fatal(err)
	}
	none := load.End{MAC: make([]byte, 6)}
	frames, err := SCIONTraffic{Cold: true, Size: int(IMIX)}.frames(router, Path{In: none, Source: none}, 120)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]int{}
	for _, f := range frames {
		seen[len(f)]++
	}
	if want := map[int]int{134: 70, 590: 40, 1514: 10}; !maps.Equal(seen, want) {
		t.Errorf("lengths %v, want %v", seen, want)
	}
}
