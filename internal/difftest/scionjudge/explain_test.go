// SPDX-License-Identifier: Apache-2.0

package scionjudge

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"culvert/internal/capture/trace"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/scion/scionview"
)

const passOther = "pass other"

// explained is how many packets of each mix are explained.
const explained = 1000

// explainedMixes is how many mixes of links have a network. Loading the program takes longer than the packets.
const explainedMixes = 4

// TestExplanationIsWhatHappens explains packets of all kinds, valid and damaged, before the program gets them. It has to count them
// under the reason of the explanation.
func TestExplanationIsWhatHappens(t *testing.T) {
	seen := make(map[string]int)
	for i, mix := range scionpkt.Mixes()[:explainedMixes] {
		rng := rand.New(rand.NewPCG(trialSeed+1, uint64(i)))
		n := scionpkt.RandomNetwork(rng, mix, uint32(time.Now().Unix()))
		x := newXDP(t, n)
		e := scionview.NewExplainer()
		if on, err := e.Follow(x.plane.Instance); err != nil || !on {
			t.Fatalf("the router is on: %t, %v", on, err)
		}
		counted := reasons(t, x)
		for range explained {
			explainOne(t, rng, n, x, e, counted, seen)
		}
		e.Close()
	}
	for _, want := range []string{
		"fwd scion-br-transit", "fwd scion-out", "fwd scion-out-transit", "fwd scion-in-transit", "fwd scion-in", "punt scion-mac",
		"punt scion-expired", "punt scion-malformed", "punt scion-ingress", "punt scion-length", "drop scion-path", "drop scion-transit-src",
		"punt scion-src-ia", "punt scion-dst-ia", "punt scion-egress", "punt scion-ingress-alert", "punt scion-egress-alert", "punt scion-link-type",
		"punt scion-segment-change", "punt scion-service", "punt scion-l4", "punt scion-onehop", "punt scion-empty",
	} {
		if seen[want] == 0 {
			t.Errorf("nothing was counted as %s", want)
		}
	}
}

// explainOne explains a packet and runs it. counted is what the program has counted before.
func explainOne(t *testing.T, rng *rand.Rand, n *scionpkt.Network, x *XDP, e trace.Explainer, counted, seen map[string]int) {
	t.Helper()
	s := scionpkt.Random(rng, n)
	if rng.IntN(3) == 0 {
		s, _ = scionpkt.Distort(rng, n, s)
	}
	frame, err := s.Build()
	if err != nil {
		return // damage can leave a packet that has no encoding
	}
	damage := ""
	if rng.IntN(3) == 0 {
		frame, damage = scionpkt.Mutate(rng, frame)
	}
	if len(frame) > 3000 {
		return // test runs of longer ones have several buffers
	}
	dev := n.Devices[n.Links[s.Link].Device]
	p, err := trace.Parse(trace.Frame{Data: frame, Length: len(frame), Ingress: dev.IfIndex, At: time.Now()}, dev.MAC)
	if err != nil {
		t.Fatalf("%v: %s", err, dump(frame))
	}
	step := trace.On("not for this interface")
	if p.Own {
		if step, err = e.Explain(p); err != nil {
			t.Fatalf("%v: %s", err, dump(frame))
		}
	}
	if _, err := x.Run(frame, dev.IfIndex); err != nil {
		t.Fatal(err)
	}
	got := "nothing"
	for r, count := range reasons(t, x) {
		if count != counted[r] && (r != passOther || got == "nothing") { // the host sends packets of its own, which no stage takes
			got = r
		}
		counted[r] = count
	}
	want := passOther
	if step.Reason != "" {
		want = step.Words()
	}
	seen[got]++
	if got != want {
		t.Errorf("counted as %s, explained as %s: %s\n%s\ndamage %q: %s", got, want, step.Text, strings.Join(step.Lookups, "\n"), damage, dump(frame))
	}
}

// reasons returns what the program has counted.
func reasons(t *testing.T, x *XDP) map[string]int {
	t.Helper()
	ports, err := x.plane.Ports()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]int)
	for _, p := range ports {
		for _, r := range p.Reasons {
			all[r.Verdict+" "+r.Name] += int(r.Packets)
		}
	}
	return all
}
