// SPDX-License-Identifier: Apache-2.0

package toobig

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/slayers"

	"culvert/internal/scion/scionpkt"
)

// packet returns a SCION packet that leaves the AS, or a random one of another kind.
func packet(t *testing.T, kind scionpkt.Kind, size int) (*scionpkt.Network, []byte) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 7))
	n := scionpkt.RandomNetwork(rng, scionpkt.Mixes()[0], uint32(time.Now().Unix()))
	for {
		s := scionpkt.Random(rng, n)
		if s.Direction != scionpkt.ExternalToSibling {
			continue
		}
		s.Payload = scionpkt.Payload{Kind: kind, SrcPort: 40000, DstPort: 40001, HopByHop: -1, EndToEnd: -1, Size: size, ErrorType: slayers.SCMPTypePacketTooBig}
		frame, err := s.Build()
		if err != nil {
			t.Fatal(err)
		}
		l, ok := scionpkt.Locate(frame)
		if !ok {
			t.Fatal("no SCION packet in the frame")
		}
		return n, bytes.Clone(frame[l.SCION:])
	}
}

// TestAnswer checks what an answer says. Its form is compared with the reference's in scionjudge.
func TestAnswer(t *testing.T) {
	for _, authenticate := range []bool{false, true} {
		for _, size := range []int{100, 1500, 8000} {
			n, raw := packet(t, scionpkt.UDP, size)
			p, err := Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			r := &Router{IA: n.IA, Host: addr.HostIP(n.Links[0].Local.Addr()), Authenticate: authenticate}
			answer, err := r.Answer(p, Way{FromExternal: true}, 1422)
			if err != nil {
				t.Fatal(err)
			}
			got := gopacket.NewPacket(answer, slayers.LayerTypeSCION, gopacket.Default)
			body, ok := got.Layer(slayers.LayerTypeSCMPPacketTooBig).(*slayers.SCMPPacketTooBig)
			if !ok || got.ErrorLayer() != nil {
				t.Fatalf("%v", got)
			}
			if body.MTU != 1422 || !bytes.HasPrefix(raw, body.Payload) {
				t.Errorf("MTU %d, quote %x", body.MTU, body.Payload)
			}
			around := len(answer) - len(body.Payload)
			if want := min(len(raw), slayers.MaxSCMPPacketLen-around); len(body.Payload) != want {
				t.Errorf("authenticate %v, %d bytes: quotes %d bytes, want %d", authenticate, len(raw), len(body.Payload), want)
			}
			if e2e, ok := got.Layer(slayers.LayerTypeEndToEndExtn).(*slayers.EndToEndExtn); ok != authenticate {
				t.Errorf("authenticator %v, want %v", e2e, authenticate)
			} else if ok {
				if _, err := e2e.FindOption(slayers.OptTypeAuthenticator); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestLargeMTU checks that a length beyond the field's 16 bits is not truncated: loopback has 65,536 bytes.
func TestLargeMTU(t *testing.T) {
	n, raw := packet(t, scionpkt.UDP, 100)
	p, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	r := &Router{IA: n.IA, Host: addr.HostIP(n.Links[0].Local.Addr())}
	answer, err := r.Answer(p, Way{FromExternal: true}, 70_000)
	if err != nil {
		t.Fatal(err)
	}
	got := gopacket.NewPacket(answer, slayers.LayerTypeSCION, gopacket.Default)
	if body, ok := got.Layer(slayers.LayerTypeSCMPPacketTooBig).(*slayers.SCMPPacketTooBig); !ok || body.MTU != 0xffff {
		t.Errorf("MTU %v, want 65535", body)
	}
}

// TestUnanswered has packets that no router answers by SCMP.
func TestUnanswered(t *testing.T) {
	for _, kind := range []scionpkt.Kind{scionpkt.ErrorUDP, scionpkt.ErrorEcho} {
		if _, raw := packet(t, kind, 1400); !refused(raw) {
			t.Errorf("%s: answered", kind)
		}
	}
	for _, kind := range []scionpkt.Kind{scionpkt.EchoRequest, scionpkt.TCP} {
		if _, raw := packet(t, kind, 1400); refused(raw) {
			t.Errorf("%s: not answered", kind)
		}
	}
	_, raw := packet(t, scionpkt.UDP, 1400)
	if refused(raw) {
		t.Error("a UDP packet is not answered")
	}
	for _, pathType := range []byte{0, 2, 4, 99} {
		other := bytes.Clone(raw)
		other[8] = pathType
		if !refused(other) {
			t.Errorf("path type %d: answered", pathType)
		}
	}
	for n := range 60 {
		if !refused(raw[:n]) {
			t.Errorf("cut off after %d bytes: answered", n)
		}
	}
}

func refused(raw []byte) bool {
	_, err := Parse(raw)
	return errors.Is(err, ErrUnanswered)
}

// TestDamaged checks that answers to damaged packets end in an answer or an error.
func TestDamaged(t *testing.T) {
	n, raw := packet(t, scionpkt.UDP, 1400)
	r := &Router{IA: n.IA, Host: addr.HostIP(n.Links[0].Local.Addr())}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		b := bytes.Clone(raw)
		for range 1 + rng.IntN(4) {
			b[rng.IntN(150)] = byte(rng.Uint32())
		}
		p, err := Parse(b)
		if err != nil {
			continue
		}
		_, _ = p.Ingress()
		w := Way{FromExternal: rng.IntN(2) == 0, ToExternal: rng.IntN(2) == 0}
		if answer, err := r.Answer(p, w, 1000); err == nil && len(answer) > slayers.MaxSCMPPacketLen {
			t.Fatalf("an answer of %d bytes to %x", len(answer), b)
		}
	}
}

func TestLimit(t *testing.T) {
	var l limit
	now := time.Now()
	taken := 0
	for range 2 * answersPerSecond {
		if l.take(now) {
			taken++
		}
	}
	if taken != answersPerSecond/10 {
		t.Errorf("%d at once, want %d", taken, answersPerSecond/10)
	}
	for range 1000 {
		now = now.Add(time.Millisecond)
		for range 100 {
			if l.take(now) {
				taken++
			}
		}
	}
	if want := answersPerSecond/10 + answersPerSecond; taken != want {
		t.Errorf("%d in a second after a burst, want %d", taken, want)
	}
}
