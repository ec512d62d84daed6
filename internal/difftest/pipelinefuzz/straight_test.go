// SPDX-License-Identifier: Apache-2.0

package pipelinefuzz

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"culvert/internal/scion/scionpkt"
)

// TestStraight sends the same frames through straight ways with the general code behind them, and through the general code alone. What
// becomes of each has to be the same, and where it is counted.
func TestStraight(t *testing.T) {
	t.Logf("seed %d", trialSeed)
	network := scionpkt.RandomNetwork(rand.New(rand.NewPCG(14, 14)), scionpkt.Mixes()[0], uint32(time.Now().Unix()))
	straight := newBedOf(t, stages{scion: true, route: true}, network)
	indexes := make([]int, len(network.Devices))
	for n := range network.Devices {
		indexes[n] = network.Devices[n].IfIndex
	}
	general := newBedOf(t, stages{scion: true, route: true, general: true}, network)
	for n := range network.Devices {
		if network.Devices[n].IfIndex != indexes[n] {
			t.Fatalf("device %d has index %d in one namespace and %d in the other", n, indexes[n], network.Devices[n].IfIndex)
		}
	}
	rng := rand.New(rand.NewPCG(trialSeed, 5))
	all := straight.corpus(rng, 400)
	choices := make([]byte, 40)
	for n := range *trials {
		for i := 0; i < len(choices); i += 8 {
			binary.LittleEndian.PutUint64(choices[i:], rng.Uint64())
		}
		tr := all[rng.IntN(len(all))]
		if n >= len(all) {
			tr = mutate(tr, &script{choices}, all)
		}
		one, err := straight.try(tr)
		if err != nil {
			t.Fatalf("seed %d, frame %d: %v", trialSeed, n, err)
		}
		two, err := general.try(tr)
		if err != nil {
			t.Fatalf("seed %d, frame %d, general code: %v", trialSeed, n, err)
		}
		if one.reason != two.reason || one.action != two.action || one.counted != two.counted || !bytes.Equal(one.frame, two.frame) {
			t.Fatalf("seed %d, frame %d: %s, action %d, counted %v\n%x\nby the general code: %s, action %d, counted %v\n%x", trialSeed, n,
				one.reason, one.action, one.counted, one.frame, two.reason, two.action, two.counted, two.frame)
		}
	}
	for _, reason := range []string{"fwd route", "fwd scion-br-transit"} {
		if straight.seen[reason] < 100**trials/20_000 {
			t.Errorf("only %d frames left as %s: %v", straight.seen[reason], reason, straight.seen)
		}
	}
}
