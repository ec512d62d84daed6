// SPDX-License-Identifier: Apache-2.0

package scionjudge

import (
	"math/rand/v2"
	"testing"
	"time"

	"culvert/internal/scion/scionpkt"
)

// newNetwork returns a random network of a mix whose time is now.
func newNetwork(seed uint64, mix scionpkt.Mix) (*rand.Rand, *scionpkt.Network) {
	rng := rand.New(rand.NewPCG(seed, 1))
	return rng, scionpkt.RandomNetwork(rng, mix, uint32(time.Now().Unix()))
}

// start starts a judge for the length of the test.
func start(t testing.TB, n *scionpkt.Network) *Judge {
	t.Helper()
	j, err := New(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return j
}

// TestReferenceForwardsValidPackets checks that the reference forwards every valid packet of scionpkt.Random in the
// packet's direction.
func TestReferenceForwardsValidPackets(t *testing.T) {
	for i, mix := range scionpkt.Mixes() {
		rng, n := newNetwork(uint64(i), mix)
		j := start(t, n)
		for range 3000 {
			s := scionpkt.Random(rng, n)
			frame, err := s.Build()
			if err != nil {
				t.Fatal(err)
			}
			res := j.Process(frame)
			if res.Kind != Forwarded || res.Ingress != s.Link {
				t.Fatalf("mix %d: %s packet with %s from link %d: %s\n%+v",
					i, s.Direction, s.Payload.Kind, res.Ingress, res, s)
			}
			want := map[scionpkt.Direction]scionpkt.Scope{
				scionpkt.ExternalToSibling: scionpkt.Sibling,
				scionpkt.ExternalToHost:    scionpkt.Internal,
			}
			scope, special := want[s.Direction]
			if !special {
				scope = scionpkt.External
			}
			if got := n.Links[res.Egress].Scope; got != scope {
				t.Fatalf("mix %d: %s packet left on a %s link", i, s.Direction, got)
			}
		}
	}
}

func BenchmarkProcess(b *testing.B) {
	rng, n := newNetwork(1, scionpkt.Mixes()[0])
	j := start(b, n)
	var frames [][]byte
	for range 1000 {
		s := scionpkt.Random(rng, n)
		f, err := s.Build()
		if err != nil {
			b.Fatal(err)
		}
		frames = append(frames, f)
	}
	b.ResetTimer()
	for i := range b.N {
		j.Process(frames[i%len(frames)])
	}
}
