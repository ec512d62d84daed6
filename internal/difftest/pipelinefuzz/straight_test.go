// SPDX-License-Identifier: Apache-2.0

package pipelinefuzz

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scionproto/scion/private/topology"

	"culvert/internal/lb/lbplane"
	"culvert/internal/scion/scionpkt"
)

// TestStraight sends the same frames through straight ways with the general code behind them, and through the general code alone. What
// becomes of each has to be the same, and where it is counted. In the first network, interfaces of each family are between parents,
// children and peers, within a segment. In the second, packets of each family change segments too.
func TestStraight(t *testing.T) {
	t.Logf("seed %d", trialSeed)
	const core, child = topology.Core, topology.Child
	switching := scionpkt.Mix{
		Core: true, Own: []topology.LinkType{core, core, core, core, child, child},
		Siblings: []topology.LinkType{core, child}, SiblingRouters: 1,
		External6: scionpkt.Half, PortStart: 31000, PortEnd: 32767,
	}
	t.Run("segment", func(t *testing.T) { compareStraight(t, scionpkt.Mixes()[0], 0) })
	t.Run("switch", func(t *testing.T) { compareStraight(t, switching, 100) })
}

// compareStraight compares in a network of the mix. Of 20,000 packets, least or more of each family have to change segments.
func compareStraight(t *testing.T, mix scionpkt.Mix, least int) {
	network := scionpkt.RandomNetwork(rand.New(rand.NewPCG(14, 14)), mix, uint32(time.Now().Unix()))
	straight := newBedOf(t, stages{scion: true, route: true, lb: true}, network)
	indexes := make([]int, len(network.Devices))
	for n := range network.Devices {
		indexes[n] = network.Devices[n].IfIndex
	}
	general := newBedOf(t, stages{scion: true, route: true, lb: true, general: true}, network)
	for n := range network.Devices {
		if network.Devices[n].IfIndex != indexes[n] {
			t.Fatalf("device %d has index %d in one namespace and %d in the other", n, indexes[n], network.Devices[n].IfIndex)
		}
	}
	rng := rand.New(rand.NewPCG(trialSeed, 5))
	all := straight.corpus(rng, 400)
	// By a quarter of these packets, segments change between core links, which is forbidden.
	mistaken := *network
	mistaken.Interfaces = slices.Clone(network.Interfaces)
	mistaken.Interfaces[2].Type, mistaken.Interfaces[3].Type = topology.Child, topology.Child
	for n := range 8 * least {
		of := network
		if n%4 == 0 {
			of = &mistaken
		}
		s, ok := scionpkt.RandomIn(rng, of, scionpkt.ExternalToExternal)
		f, err := s.Build()
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		all = append(all, trial{frame: f, in: network.Links[s.Link].Device})
	}
	choices := make([]byte, 40)
	switches := map[int]int{} // of segments, within a family
	for n := range *trials {
		for i := 0; i < len(choices); i += 8 {
			binary.LittleEndian.PutUint64(choices[i:], rng.Uint64())
		}
		tr := all[rng.IntN(len(all))]
		if n >= len(all) {
			tr = mutate(tr, &script{choices}, all)
		}
		numberDatagram(tr.frame, uint16(n))
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
		if one.reason == "fwd scion-br-transit" && switched(tr.frame, one.frame) {
			switches[decode(one.frame).ip]++
		}
	}
	for _, reason := range []string{"fwd route", "fwd scion-br-transit", "fwd lb-flow"} {
		if straight.seen[reason] < 100**trials/20_000 {
			t.Errorf("only %d frames left as %s: %v", straight.seen[reason], reason, straight.seen)
		}
	}
	if least := least * *trials / 20_000; switches[4] < least || switches[6] < least {
		t.Errorf("%d packets changed segments over IPv4 and %d over IPv6, at least %d of each are wanted", switches[4], switches[6], least)
	}
	one, err := straight.balanced()
	if err != nil {
		t.Fatal(err)
	}
	two, err := general.balanced()
	if err != nil {
		t.Fatal(err)
	}
	for what, n := range one {
		if two[what] != n {
			t.Errorf("%s: %s, by the general code %s", what, n, two[what])
		}
		delete(two, what)
	}
	if len(one) == 0 || len(two) > 0 {
		t.Errorf("%d entries and counters of the balancer, and by the general code also %v", len(one), two)
	}
}

// switched tells whether a SCION packet left two hop fields behind, that of the segment that it came by and that of the next, and
// stayed in its family.
func switched(in, out []byte) bool {
	return decode(in).ip == decode(out).ip && currentHop(out) == currentHop(in)+2
}

// currentHop returns the index of the current hop field of a SCION packet, below 64.
func currentHop(frame []byte) int {
	l, _ := scionpkt.Locate(frame)
	hdr := frame[l.SCION:]
	return int(hdr[28+8+4*int(hdr[9]&3+hdr[9]>>4&3)] & 0x3f)
}

// numberDatagram gives a fragment an identification of its own. How long the balancer remembers a datagram that another one has the
// identification of is a matter of time, and the two beds do not get a frame at the same time.
func numberDatagram(frame []byte, id uint16) {
	v := decode(frame)
	switch b := frame[min(v.l3, len(frame)):]; {
	case !v.frag:
	case v.ip == 4:
		be.PutUint16(b[4:], id)
		b[10], b[11] = 0, 0
		be.PutUint16(b[10:], ^sum(b[:v.head]))
	default:
		be.PutUint16(b[46:], id)
	}
}

// balanced returns what the balancer has counted, and the backends and states of the flows in its table. How soon a late segment opens
// a closing flow again is a matter of time, so the two states count as one.
func (b *bed) balanced() (map[string]string, error) {
	all := make(map[string]string)
	for _, m := range b.backends {
		n, err := b.plane.Traffic(m.ID.Number())
		if err != nil {
			return nil, err
		}
		all[fmt.Sprint("traffic of backend ", m.ID.Number())] = fmt.Sprint(n)
	}
	for _, v := range b.vips {
		n, err := b.plane.Events(v.number)
		if err != nil {
			return nil, err
		}
		all[fmt.Sprint("events of VIP ", v.number)] = fmt.Sprint(n)
	}
	return all, b.plane.Flows(func(f lbplane.Flow) bool {
		all[fmt.Sprint("flow of ", f.Client, " to VIP ", f.VIP, " port ", f.Port)] = fmt.Sprint(f.Backend.Number(), " ", strings.Replace(f.State, "closing", "open", 1))
		return true
	})
}
