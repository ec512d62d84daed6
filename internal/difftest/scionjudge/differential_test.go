// SPDX-License-Identifier: Apache-2.0

package scionjudge

import (
	"flag"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"culvert/internal/scion/scionpkt"
)

// trialSeed determines all packets of the trials. A failing packet is printed, so the seed is needed only for those
// before it.
const trialSeed = 2

// trialPackets is how many packets the program in the kernel is compared on. Emulated guests run with fewer.
var trialPackets = flag.Int("packets", 100_000, "how many packets TestXDPAgainstReference sends")

// runTrials compares a fast path with the reference on every mix of networks. It checks that both have forwarded packets
// in each direction.
func runTrials(t *testing.T, packets int, newFast func(*testing.T, *scionpkt.Network) FastPath) {
	t.Helper()
	t.Logf("seed %d", trialSeed)
	var sum Stats
	mixes := scionpkt.Mixes()
	for i, mix := range mixes {
		rng := rand.New(rand.NewPCG(trialSeed, uint64(i)))
		n := scionpkt.RandomNetwork(rng, mix, uint32(time.Now().Unix()))
		trial := Trial{Net: n, Judge: start(t, n), Fast: newFast(t, n), Rand: rng}
		if err := trial.Run(packets / len(mixes)); err != nil {
			t.Fatalf("seed %d, mix %d: %v", trialSeed, i, err)
		}
		sum.Add(&trial.Stats)
	}
	t.Logf("\n%s", &sum)
	for d := range scionpkt.NumDirections {
		if least := packets / 50; sum.Valid[d].Both < least {
			t.Errorf("%s: only %d packets forwarded by both, want %d", d, sum.Valid[d].Both, least)
		}
	}
}

// TestHonestFastPath checks that a fast path with the verdicts of a second reference passes.
func TestHonestFastPath(t *testing.T) {
	runTrials(t, 30000, func(t *testing.T, n *scionpkt.Network) FastPath {
		return &honest{net: n, j: start(t, n)}
	})
}

// newXDP attaches culvert in a network namespace of its own. The test's thread stays in that namespace and ends with the
// test.
func newXDP(t testing.TB, n *scionpkt.Network) *XDP {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces and loads eBPF programs: run it as root")
	}
	runtime.LockOSThread()
	ns, err := netns.New()
	if err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() { ns.Close() })
	x, err := NewXDP(n, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// TestXDPAgainstReference checks that the program in the kernel agrees with the reference on every packet.
func TestXDPAgainstReference(t *testing.T) {
	runTrials(t, *trialPackets, func(t *testing.T, n *scionpkt.Network) FastPath { return newXDP(t, n) })
}

// TestXDPLinkDown sets each link down in both. The program does not use that link, and still uses the others.
func TestXDPLinkDown(t *testing.T) {
	rng, n := newNetwork(6, scionpkt.Mixes()[0])
	x := newXDP(t, n)
	trial := Trial{Net: n, Judge: start(t, n), Fast: x, Rand: rng}
	for link := 1; link < len(n.Links); link++ {
		for _, up := range []bool{false, true} {
			if err := trial.Judge.SetLinkUp(link, up); err != nil {
				t.Fatal(err)
			}
			if err := x.SetLinkUp(link, up); err != nil {
				t.Fatal(err)
			}
			before := trial.Stats.answered()
			if err := trial.Run(1000); err != nil {
				t.Fatalf("link %d up: %t: %v", link, up, err)
			}
			if n := trial.Stats.answered() - before; up != (n == 0) {
				t.Errorf("link %d up: %t: %d valid packets answered", link, up, n)
			}
		}
	}
}

// answered counts the undamaged packets that the reference has answered.
func (s *Stats) answered() (n int) {
	for _, c := range s.Valid {
		n += c.ByReference[Answered]
	}
	return n
}
