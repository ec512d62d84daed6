// SPDX-License-Identifier: Apache-2.0

package pipelinefuzz

import (
	"math/rand/v2"
	"testing"
	"time"

	"culvert/internal/scion/scionpkt"
)

// mostEffort is how many instructions the verifier may look at for a program. Linux gives up at a million; loading takes longer the more there are.
// The verifier of Linux 6.1 forgets least, and so looks at most: this test runs there as well (scripts/test-kernels.sh).
const mostEffort = 200_000

// TestVerifierEffort loads programs with one stage and with several. The kernel's verifier has to be done with each soon.
func TestVerifierEffort(t *testing.T) {
	network := scionpkt.RandomNetwork(rand.New(rand.NewPCG(14, 14)), scionpkt.Mixes()[0], uint32(time.Now().Unix()))
	for name, on := range map[string]stages{
		"scion": {scion: true}, "route": {route: true}, "lb": {lb: true}, "scion and route": {scion: true, route: true}, "all": allStages,
		"route by lease": {route: true, lease: true}, "all by lease": {filter: true, lb: true, scion: true, route: true, lease: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBedOf(t, on, network)
			info, err := b.inst.Program().Info()
			if err != nil {
				t.Fatal(err)
			}
			n, known := info.VerifiedInstructions()
			t.Logf("%d instructions looked at", n)
			if !known || n > mostEffort {
				t.Errorf("the verifier looked at %d instructions, at most %d are wanted", n, mostEffort)
			}
		})
	}
}
