// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestParseSizes(t *testing.T) {
	got, err := parseSizes([]string{"60", imixWord, "1514"})
	if want := []frameLength{60, imix, 1514}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, error %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", "41", "1515", "-60", "64B", "jumbo"} {
		if _, err := parseSizes([]string{"138", bad}); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "42 to 1514") {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}

// Of twelve frames of the mix seven are short, four of middle length and one is long.
func TestMixedLengths(t *testing.T) {
	const n = 120
	udp, err := imix.udpFrames(n)
	if err != nil {
		t.Fatal(err)
	}
	router, err := benchRouter()
	if err != nil {
		t.Fatal(err)
	}
	none := End{MAC: make([]byte, 6)}
	scion, err := scionTraffic{cold: true, size: int(imix)}.frames(router, Path{In: none, Source: none}, n)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		frames [][]byte
		want   map[int]int
	}{
		"UDP":   {udp, map[int]int{60: 70, 590: 40, 1514: 10}},
		"SCION": {scion, map[int]int{134: 70, 590: 40, 1514: 10}},
	} {
		seen := map[int]int{}
		for _, f := range tc.frames {
			seen[len(f)]++
		}
		for length, count := range tc.want {
			if seen[length] != count || len(seen) != len(tc.want) {
				t.Errorf("%s: lengths %v, want %v", name, seen, tc.want)
			}
		}
	}
	if !slices.Equal(udp[0][:minFrame], udp[2][:minFrame]) || slices.Equal(udp[0][:minUDPFrame], udp[2][:minUDPFrame]) {
		t.Error("frames of one length are of one flow")
	}
}
