// SPDX-License-Identifier: Apache-2.0

package scionjudge

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/slayers"

	"culvert/internal/scion/scionpkt"
)

// packet returns a frame in the given direction after a change of its description, which may be nil.
func packet(t *testing.T, rng *rand.Rand, n *scionpkt.Network, d scionpkt.Direction,
	change func(*scionpkt.Spec)) []byte {
	t.Helper()
	s, ok := scionpkt.RandomIn(rng, n, d)
	if !ok {
		t.Fatalf("the network has no way %s", d)
	}
	s.Outer.ZeroChecksum = false
	s.Payload = scionpkt.Payload{Kind: scionpkt.UDP, Size: 100, SrcPort: 1, DstPort: 2,
		HopByHop: -1, EndToEnd: -1}
	if change != nil {
		change(&s)
	}
	f, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestDispatchedPorts checks that the judge delivers by the range of dispatched ports, which the reference ignores.
func TestDispatchedPorts(t *testing.T) {
	rng, n := newNetwork(1, scionpkt.Mixes()[0])
	j := start(t, n)
	const dispatcher = 30041
	for _, c := range []struct {
		name       string
		port, want uint16
	}{
		{"below the range", 30999, dispatcher},
		{"first of the range", 31000, 31000},
		{"last of the range", 32767, 32767},
		{"above the range", 32768, dispatcher},
		{"the dispatcher's", dispatcher, dispatcher},
		{"well-known port", 80, dispatcher},
		{"port 0", 0, dispatcher},
	} {
		res := j.Process(packet(t, rng, n, scionpkt.ExternalToHost, func(s *scionpkt.Spec) {
			s.DstHost = addr.HostIP(n.Hosts[0].Addr)
			s.Payload.DstPort = c.port
		}))
		if res.Kind != Forwarded || res.Dst != netip.AddrPortFrom(n.Hosts[0].Addr, c.want) {
			t.Errorf("%s: %s, want port %d", c.name, res, c.want)
		}
	}
	// A service has the port of its entry in the topology.
	res := j.Process(packet(t, rng, n, scionpkt.ExternalToHost, func(s *scionpkt.Spec) {
		s.DstHost = addr.HostSVC(addr.SvcDS)
	}))
	if res.Kind != Forwarded || res.Dst != n.Discovery[0] {
		t.Errorf("service: %s, want %s", res, n.Discovery[0])
	}
	// An answer to a host of the AS goes to the packet's source port.
	var source netip.AddrPort
	res = j.Process(packet(t, rng, n, scionpkt.InsideToExternal, func(s *scionpkt.Spec) {
		s.Key[0] ^= 1
		source = s.Outer.Src
	}))
	if res.Kind != Answered || res.Dst != source {
		t.Errorf("bad MAC from inside: %s, want an answer to %s", res, source)
	}
}

// TestCrashIsAvoided checks that the judge drops a packet that the reference panics on.
func TestCrashIsAvoided(t *testing.T) {
	rng, n := newNetwork(1, scionpkt.Mixes()[0])
	j := start(t, n)
	res := j.Process(packet(t, rng, n, scionpkt.InsideToExternal, func(s *scionpkt.Spec) {
		s.SrcHost = addr.HostSVC(addr.SvcCS)
	}))
	if res.Kind != Dropped || res.Note == "" {
		t.Errorf("%s, want dropped with a note", res)
	}
}

// TestAnswers checks that every answer goes back to the packet's link and is the right one.
func TestAnswers(t *testing.T) {
	rng, n := newNetwork(3, scionpkt.Mixes()[1])
	j := start(t, n)
	for range 500 {
		frame := packet(t, rng, n, scionpkt.ExternalToExternal, func(s *scionpkt.Spec) { s.Key[3] ^= 1 })
		res := j.Process(frame)
		if res.Kind != Answered || res.Egress != res.Ingress {
			t.Fatalf("%s on link %d", res, res.Ingress)
		}
		if typ, code := scmpOf(t, res.Payload); typ != slayers.SCMPTypeParameterProblem ||
			code != slayers.SCMPCodeInvalidHopFieldMAC {
			t.Fatalf("SCMP %d/%d for a wrong MAC", typ, code)
		}
	}
}

// scmpOf returns the type and the code of a SCMP message.
func scmpOf(t *testing.T, p []byte) (slayers.SCMPType, slayers.SCMPCode) {
	t.Helper()
	if slayers.L4ProtocolType(p[4]) != slayers.L4SCMP {
		t.Fatalf("answered with protocol %d", p[4])
	}
	l4 := p[int(p[5])*slayers.LineLen:]
	return slayers.SCMPType(l4[0]), slayers.SCMPCode(l4[1])
}

// TestLinkDown checks that packets for a link that is down are answered, and forwarded again once it is up.
func TestLinkDown(t *testing.T) {
	rng, n := newNetwork(2, scionpkt.Mixes()[0])
	j := start(t, n)
	for d, want := range map[scionpkt.Direction]slayers.SCMPType{
		scionpkt.ExternalToExternal: slayers.SCMPTypeExternalInterfaceDown,
		scionpkt.ExternalToSibling:  slayers.SCMPTypeInternalConnectivityDown,
	} {
		frame := packet(t, rng, n, d, nil)
		link := j.Process(frame).Egress
		for range 3 {
			if err := j.SetLinkUp(link, false); err != nil {
				t.Fatal(err)
			}
			res := j.Process(frame)
			if res.Kind != Answered {
				t.Fatalf("%s with link %d down", res, link)
			}
			if typ, _ := scmpOf(t, res.Payload); typ != want {
				t.Errorf("%s: SCMP type %d, want %d", d, typ, want)
			}
			if err := j.SetLinkUp(link, true); err != nil {
				t.Fatal(err)
			}
			if res := j.Process(frame); res.Kind != Forwarded {
				t.Fatalf("%s with link %d up again", res, link)
			}
		}
	}
	if err := j.SetLinkUp(0, false); err == nil {
		t.Error("the internal link could be set down")
	}
}

// TestTooLargeForTheReference checks that a packet larger than the reference's buffers is answered: the reference sees it
// truncated.
func TestTooLargeForTheReference(t *testing.T) {
	rng, n := newNetwork(2, scionpkt.Mixes()[0])
	j := start(t, n)
	for _, c := range []struct {
		name    string
		payload int // bytes
		want    Kind
	}{
		{"fits the buffer", 8000, Forwarded},
		{"exceeds the buffer", 8480, Answered},
	} {
		frame := packet(t, rng, n, scionpkt.ExternalToExternal, func(s *scionpkt.Spec) {
			s.Payload.Size = c.payload
		})
		if res := j.Process(frame); res.Kind != c.want {
			t.Errorf("%s: %s, want %s", c.name, res, c.want)
		}
	}
}

// TestHostStack checks that frames which the host's network stack drops do not reach the reference.
func TestHostStack(t *testing.T) {
	rng, n := newNetwork(1, scionpkt.Mixes()[0])
	j := start(t, n)
	const ip = scionpkt.EthernetLen
	fixIP := func(f []byte) {
		f[ip+10], f[ip+11] = 0, 0
		binary.BigEndian.PutUint16(f[ip+10:], ^scionpkt.Sum(f[ip:ip+int(f[ip]&15)*4]))
	}
	// Packets from inside always come over IPv4 in this network.
	good := packet(t, rng, n, scionpkt.InsideToExternal, nil)
	for name, c := range map[string]struct {
		change func(f []byte) []byte
		want   string
	}{
		"other MAC":     {func(f []byte) []byte { f[5] ^= 0x80; return f }, "MAC"},
		"VLAN":          {func(f []byte) []byte { f[12], f[13] = 0x81, 0; return f }, "neither"},
		"short":         {func(f []byte) []byte { return f[:10] }, "Ethernet"},
		"cut":           {func(f []byte) []byte { return f[:len(f)-1] }, "length"},
		"IP checksum":   {func(f []byte) []byte { f[ip+8]--; return f }, "header checksum"},
		"fragment":      {func(f []byte) []byte { f[ip+6] |= 0x20; fixIP(f); return f }, "fragment"},
		"TCP":           {func(f []byte) []byte { f[ip+9] = 6; fixIP(f); return f }, "not UDP"},
		"UDP length":    {func(f []byte) []byte { f[ip+24]++; return f }, "UDP length"},
		"other port":    {func(f []byte) []byte { f[ip+23] ^= 1; scionpkt.FixOuter(f); return f }, "no socket"},
		"other address": {func(f []byte) []byte { f[ip+19] ^= 1; scionpkt.FixOuter(f); return f }, "no socket"},
		"loopback":      {func(f []byte) []byte { f[ip+12] = 127; scionpkt.FixOuter(f); return f }, "martian"},
		"broadcast": {func(f []byte) []byte {
			copy(f[ip+12:], []byte{255, 255, 255, 255})
			scionpkt.FixOuter(f)
			return f
		}, "martian"},
		"own address": {func(f []byte) []byte {
			copy(f[ip+12:ip+16], f[ip+16:ip+20])
			scionpkt.FixOuter(f)
			return f
		}, "martian"},
		"IPv6 without checksum": {func([]byte) []byte {
			for {
				f := packet(t, rng, n, scionpkt.ExternalToExternal, nil)
				if l, _ := scionpkt.Locate(f); l.IPv6 {
					f[l.UDP+6], f[l.UDP+7] = 0, 0
					return f
				}
			}
		}, "no UDP checksum"},
	} {
		res := j.Process(c.change(bytes.Clone(good)))
		if res.Kind != Dropped || !bytes.Contains([]byte(res.Note), []byte(c.want)) {
			t.Errorf("%s: %s, want dropped for %q", name, res, c.want)
		}
	}
	if res := j.Process(good); res.Kind != Forwarded {
		t.Errorf("the unchanged frame: %s", res)
	}
	res := j.Process(append(bytes.Clone(good), 0, 0))
	if res.Kind != Forwarded {
		t.Errorf("with an Ethernet trailer: %s", res)
	}
}
