// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"math/rand/v2"
	"testing"

	"culvert/internal/scion/scionpkt"
)

// TestHopMAC computes MACs from the keys as they are in the programs' map.
func TestHopMAC(t *testing.T) {
	vectors, err := scionpkt.MACVectors(rand.New(rand.NewPCG(5, 5)), 500)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		if got := loadedKey(cmacKey(v.Key)); got != v.Key {
			t.Fatalf("key %x is read as %x", v.Key, got)
		}
		if got := hopMAC(cmacKey(v.Key), v.Input); got != v.Hop.Mac {
			t.Fatalf("key %x, block %x: %x, want %x", v.Key, v.Input, got, v.Hop.Mac)
		}
	}
}
