// SPDX-License-Identifier: Apache-2.0

package scionjudge

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/slayers"

	"culvert/internal/scion/scionpkt"
	"culvert/internal/scion/toobig"
)

// TestAnswersAreTheReferences compares culvert's own SCMP errors with the reference's, byte by byte. The reference has none for
// packets that are too big, but one for a link that is down. So the same packet is forwarded while the link is up, culvert makes an
// answer of what was forwarded, and the reference answers it while the link is down.
func TestAnswersAreTheReferences(t *testing.T) {
	compared := map[scionpkt.Direction]int{}
	for i, mix := range scionpkt.Mixes() {
		rng, n := newNetwork(uint64(i)+100, mix)
		j := start(t, n)
		r := &toobig.Router{IA: n.IA, Host: addr.HostIP(n.Links[0].Local.Addr())}
		for range 1500 {
			s := scionpkt.Random(rng, n)
			frame, err := s.Build()
			if err != nil {
				t.Fatal(err)
			}
			forwarded := j.Process(frame)
			egress := forwarded.Egress
			if forwarded.Kind != Forwarded || n.Links[egress].Scope == scionpkt.Internal {
				continue
			}
			if err := j.SetLinkUp(egress, false); err != nil {
				t.Fatal(err)
			}
			want := j.Process(frame)
			if err := j.SetLinkUp(egress, true); err != nil {
				t.Fatal(err)
			}
			got, err := answerDown(r, n, forwarded, egressOf(n, want.Payload))
			if want.Kind != Answered {
				if err == nil {
					t.Fatalf("mix %d: %s packet with %s: answered, and not by the reference\n%+v", i, s.Direction, s.Payload.Kind, s)
				}
				continue
			}
			if err != nil || !bytes.Equal(got, want.Payload) {
				t.Fatalf("mix %d: %s packet with %s: error %v, answer\n%x\nwant\n%x\n%+v", i, s.Direction, s.Payload.Kind, err, got, want.Payload, s)
			}
			compared[s.Direction]++
		}
	}
	t.Logf("answers compared: %v", compared)
	for d := range scionpkt.NumDirections {
		if d != scionpkt.ExternalToHost && compared[d] < 200 {
			t.Errorf("%s: only %d answers compared", d, compared[d])
		}
	}
}

// answerDown makes culvert's answer to a packet that the reference has forwarded, as if it could not leave.
func answerDown(r *toobig.Router, n *scionpkt.Network, forwarded Result, egress uint64) ([]byte, error) {
	p, err := toobig.Parse(bytes.Clone(forwarded.Payload))
	if err != nil {
		return nil, err
	}
	way := toobig.Way{FromExternal: n.Links[forwarded.Ingress].Scope == scionpkt.External,
		ToExternal: n.Links[forwarded.Egress].Scope == scionpkt.External}
	if way.ToExternal {
		return r.Error(p, way, slayers.SCMPTypeExternalInterfaceDown, &slayers.SCMPExternalInterfaceDown{IA: n.IA, IfID: egress})
	}
	ingress, err := p.Ingress()
	if err != nil {
		return nil, err
	}
	return r.Error(p, way, slayers.SCMPTypeInternalConnectivityDown,
		&slayers.SCMPInternalConnectivityDown{IA: n.IA, Ingress: uint64(ingress), Egress: egress})
}

// egressOf returns the interface that the reference names in an answer about a link that is down, 0 if it is no such answer.
func egressOf(n *scionpkt.Network, answer []byte) uint64 {
	p := gopacket.NewPacket(answer, slayers.LayerTypeSCION, gopacket.Default)
	if l, ok := p.Layer(slayers.LayerTypeSCMPExternalInterfaceDown).(*slayers.SCMPExternalInterfaceDown); ok && l.IA == n.IA {
		return l.IfID
	}
	if l, ok := p.Layer(slayers.LayerTypeSCMPInternalConnectivityDown).(*slayers.SCMPInternalConnectivityDown); ok && l.IA == n.IA {
		return l.Egress
	}
	return 0
}
