// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"maps"
	"testing"

	"culvert/internal/bench/load"
	"culvert/internal/scion/scionpkt"
)

// lengths counts frames by their length.
func lengths(frames [][]byte) map[int]int {
	count := map[int]int{}
	for _, f := range frames {
		count[len(f)]++
	}
	return count
}

func TestIMIXProportions(t *testing.T) {
	const n = 12 * 100
	udp, err := load.UDPFrames(n, load.IMIX()...)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := lengths(udp), (map[int]int{60: 700, 590: 400, 1514: 100}); !maps.Equal(got, want) {
		t.Errorf("UDP frames by length %v, want %v", got, want)
	}
	router, err := benchRouter()
	if err != nil {
		t.Fatal(err)
	}
	mac := make([]byte, 6)
	p := Path{Source: load.End{MAC: mac}, In: load.End{MAC: mac}}
	scion, err := SCIONTraffic{Cold: true, Payload: load.StampLen}.mix(router, p, n, load.IMIX())
	if err != nil {
		t.Fatal(err)
	}
	// The headers of a SCION packet with three hop fields and a stamp take 150 bytes.
	if got, want := lengths(scion), (map[int]int{150: 700, 590: 400, 1514: 100}); !maps.Equal(got, want) {
		t.Errorf("SCION frames by length %v, want %v", got, want)
	}
	if err := load.CheckStampRoom(scion); err != nil {
		t.Error(err)
	}
	different := map[string]bool{}
	for i, f := range scion {
		l, ok := scionpkt.Locate(f)
		if !ok || scionpkt.UDPSum(f, l) != 0xffff {
			t.Fatalf("frame %d is wrong: %x", i, f)
		}
		different[string(f)] = true
	}
	if len(different) != n {
		t.Errorf("%d different frames, want %d", len(different), n)
	}
}
