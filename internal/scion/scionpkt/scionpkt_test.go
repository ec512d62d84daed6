// SPDX-License-Identifier: Apache-2.0

package scionpkt

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/scionproto/scion/pkg/scrypto"
	"github.com/scionproto/scion/pkg/slayers"
	"github.com/scionproto/scion/pkg/slayers/path"
)

// testNetwork returns a random network and the generator that has made it. mix is an index of Mixes.
func testNetwork(seed uint64, mix int) (*rand.Rand, *Network) {
	rng := rand.New(rand.NewPCG(seed, 7))
	return rng, RandomNetwork(rng, Mixes()[mix], 1_700_000_000)
}

// TestDeterministic makes frames twice with the same seed, whole and damaged ones. They are equal.
func TestDeterministic(t *testing.T) {
	frames := func() [][]byte {
		rng, n := testNetwork(3, 0)
		var fs [][]byte
		for range 300 {
			s := Random(rng, n)
			f, err := s.Build()
			if err != nil {
				t.Fatal(err)
			}
			m, _ := Mutate(rng, f)
			d, _ := Distort(rng, n, s)
			g, _ := d.Build()
			fs = append(fs, f, m, g)
		}
		return fs
	}
	if !reflect.DeepEqual(frames(), frames()) {
		t.Error("the same seed made other frames")
	}
}

// TestDistortLeavesItsInput wants Distort to leave its spec unchanged, down to the hop fields.
func TestDistortLeavesItsInput(t *testing.T) {
	rng, n := testNetwork(4, 0)
	for range 2000 {
		s := Random(rng, n)
		before, err := s.Build()
		if err != nil {
			t.Fatal(err)
		}
		Distort(rng, n, s)
		if after, _ := s.Build(); !bytes.Equal(before, after) {
			t.Fatalf("Distort changed its input: %+v", s)
		}
	}
}

// TestOuterHeaders decodes frames with gopacket. Outer headers, lengths and checksums must be right.
func TestOuterHeaders(t *testing.T) {
	for _, tt := range []struct{ family, src, dst string }{
		{"IPv4", "10.0.0.1:1", "10.0.0.2:65535"},
		{"IPv6", "[fd00::1]:7", "[fd00::2]:9"},
	} {
		for _, size := range []int{0, 1, 2, 3, 1400, 8000} {
			t.Run(fmt.Sprintf("%s, %d bytes", tt.family, size), func(t *testing.T) {
				o := Outer{
					DstMAC: [6]byte{2, 1}, SrcMAC: [6]byte{2, 2},
					Src: netip.MustParseAddrPort(tt.src), Dst: netip.MustParseAddrPort(tt.dst),
				}
				f, err := o.Frame(bytes.Repeat([]byte{0xa5}, size))
				if err != nil {
					t.Fatal(err)
				}
				p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default)
				if p.ErrorLayer() != nil {
					t.Fatal(p.ErrorLayer().Error())
				}
				udp := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
				if err := udp.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
					t.Fatal(err)
				}
				err, wrong := p.VerifyChecksums()
				if err != nil || len(wrong) > 0 {
					t.Errorf("checksums %v, error %v", wrong, err)
				}
				if len(udp.Payload) != size {
					t.Errorf("%d bytes of payload, want %d", len(udp.Payload), size)
				}
				before := bytes.Clone(f)
				FixOuter(f)
				if !bytes.Equal(before, f) {
					t.Error("FixOuter changed a right frame")
				}
			})
		}
	}
	o := Outer{Src: netip.MustParseAddrPort("10.0.0.1:1"), Dst: netip.MustParseAddrPort("[fd00::1]:1")}
	if _, err := o.Frame(nil); err == nil {
		t.Error("two families in one frame are accepted")
	}
}

// TestRandomCoversItsRange wants Random to make packets of every kind that its comment promises.
func TestRandomCoversItsRange(t *testing.T) {
	seen := map[string]int{}
	note := func(what string, is bool) {
		if is {
			seen[what]++
		}
	}
	for mix := range Mixes() {
		rng, n := testNetwork(5, mix)
		for range 4000 {
			s := Random(rng, n)
			p := s.Payload
			note(s.Direction.String(), true)
			note(p.Kind.String(), true)
			note("hop-by-hop", p.HopByHop >= 0)
			note("end-to-end", p.EndToEnd >= 0)
			note("both extensions", p.HopByHop >= 0 && p.EndToEnd >= 0)
			note("empty payload", p.Size == 0)
			note("jumbo", p.Size > 7000)
			note("no checksum", s.Outer.ZeroChecksum)
			note("IPv6 underlay", s.Outer.Src.Addr().Is6())
			note([]string{"", "one segment", "two segments", "three segments"}[len(s.Segments)], true)
			note("long path", s.numHops() > 40)
			note("peering hop", s.peering())
			note("two own hops", len(s.ownHops()) == 2)
			note("against construction", !s.Segments[s.CurrINF].ConsDir)
			note("in construction direction", s.Segments[s.CurrINF].ConsDir)
			note("service", s.DstHost.String() == "CS" && s.Direction == ExternalToHost)
			note("mixed families", s.DstHost.String() != "CS" &&
				s.Outer.Src.Addr().Is6() && s.Direction == ExternalToHost && n.Links[0].Local.Addr().Is4())
			note("must forward", s.MustForward)
			note("need not forward", !s.MustForward)
		}
	}
	want := []string{
		"hop-by-hop", "end-to-end", "both extensions", "empty payload", "jumbo", "no checksum",
		"IPv6 underlay", "one segment", "two segments", "three segments", "long path",
		"peering hop", "two own hops", "against construction", "in construction direction",
		"service", "mixed families", "must forward", "need not forward",
	}
	for d := range NumDirections {
		want = append(want, d.String())
	}
	for k := range NumKinds {
		want = append(want, k.String())
	}
	for _, what := range want {
		if seen[what] < 20 {
			t.Errorf("%s: %d packets of 24000", what, seen[what])
		}
	}
}

// TestMutateCoversItsRange wants Mutate and Distort to choose every kind of damage, and damage to change the frame.
func TestMutateCoversItsRange(t *testing.T) {
	seen, same := map[string]int{}, 0
	rng, n := testNetwork(6, 0)
	for range 20000 {
		s := Random(rng, n)
		f, err := s.Build()
		if err != nil {
			t.Fatal(err)
		}
		before := bytes.Clone(f)
		m, name := Mutate(rng, f)
		if !bytes.Equal(before, f) {
			t.Fatalf("%s: Mutate changed its input", name)
		}
		seen[name]++
		if bytes.Equal(m, f) {
			same++
		}
		_, name = Distort(rng, n, s)
		seen[name]++
	}
	for _, m := range mutators {
		if seen[m.name] < 20 {
			t.Errorf("%s: %d of 20000", m.name, seen[m.name])
		}
	}
	for _, d := range distortions {
		if seen[d.name] < 20 {
			t.Errorf("%s: %d of 20000", d.name, seen[d.name])
		}
	}
	// A random byte may equal the one that it replaces.
	if same > 400 {
		t.Errorf("%d of 20000 damaged frames are unchanged", same)
	}
}

// TestTopologyRoundTrip writes topologies and reads them again.
func TestTopologyRoundTrip(t *testing.T) {
	for mix := range Mixes() {
		_, n := testNetwork(8, mix)
		text, err := n.TopologyJSON()
		if err != nil {
			t.Fatal(err)
		}
		back, err := FromTopology(text, n.RouterID)
		if err != nil {
			t.Fatal(err)
		}
		if back.IA != n.IA || back.Core != n.Core || back.PortStart != n.PortStart ||
			back.PortEnd != n.PortEnd || len(back.Links) != len(n.Links) ||
			!reflect.DeepEqual(back.Control, n.Control) {
			t.Errorf("mix %d: read back %+v, wrote %+v", mix, back, n)
		}
		for _, want := range n.Interfaces {
			got := back.Interface(want.ID)
			if got == nil || got.Type != want.Type || got.Neighbor != want.Neighbor ||
				got.Local != want.Local || got.Remote != want.Remote ||
				back.Links[got.Link].Remote != n.Links[want.Link].Remote {
				t.Errorf("mix %d: interface %d: read back %+v, wrote %+v", mix, want.ID, got, want)
			}
		}
		if _, err := FromTopology(text, "nobody"); err == nil {
			t.Error("an unknown router is found")
		}
	}
}

// TestMACVectors computes the AES-CMAC of each vector's input without the path package.
func TestMACVectors(t *testing.T) {
	vs, err := MACVectors(rand.New(rand.NewPCG(1, 1)), 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vs {
		mac, err := scrypto.InitMac(v.Key[:])
		if err != nil {
			t.Fatal(err)
		}
		mac.Write(v.Input[:])
		if sum := mac.Sum(nil); !bytes.Equal(sum, v.Full[:]) ||
			!bytes.Equal(sum[:path.MacLen], v.Hop.Mac[:]) {
			t.Errorf("CMAC %x, vector %x and %x", sum, v.Full, v.Hop.Mac)
		}
	}
}

// TestBuildRefuses wants an error for specs that Build cannot encode.
func TestBuildRefuses(t *testing.T) {
	rng, n := testNetwork(9, 0)
	for name, spoil := range map[string]func(*Spec){
		"no segment":         func(s *Spec) { s.Segments = nil },
		"four segments":      func(s *Spec) { s.Segments = make([]Segment, 4) },
		"a segment too long": func(s *Spec) { s.Segments = []Segment{{Hops: make([]Hop, 64)}} },
		"too many hops":      func(s *Spec) { s.Segments = []Segment{{Hops: make([]Hop, 33)}, {Hops: make([]Hop, 33)}} },
		"too large":          func(s *Spec) { s.Payload = Payload{Kind: Raw, Size: 65535, HopByHop: -1, EndToEnd: -1} },
		"no source":          func(s *Spec) { s.Outer.Src = netip.AddrPort{} },
	} {
		s := Random(rng, n)
		s.CurrINF, s.CurrHF = 0, 0
		spoil(&s)
		if _, err := s.Build(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if slayers.MaxHdrLen != 1020 {
		t.Error("the longest SCION header is not 1020 bytes any more")
	}
}

// TestNoSuchInterface asks for packets by interfaces that the topology does not have.
func TestNoSuchInterface(t *testing.T) {
	n := &Network{Interfaces: []Interface{{ID: 2}, {ID: 1}}}
	o := GenerateOptions{Flows: 1, HopFields: 4, Sizes: []int{256}, Family: "4", Ingress: -1, Egress: 9}
	const want = "egress 9: the topology has no interface 9: its interfaces are 1 2"
	if _, err := newGenerator(n, o); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	for id, good := range map[int]bool{-1: true, 0: true, 1: true, 2: true, 3: false, 1 << 16: false} {
		if err := n.haveInterface("ingress", id); (err == nil) != good {
			t.Errorf("interface %d: %v", id, err)
		}
	}
}
