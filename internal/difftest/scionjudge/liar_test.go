// SPDX-License-Identifier: Apache-2.0

package scionjudge

import (
	"encoding/binary"
	"strings"
	"testing"

	"culvert/internal/scion/scionpkt"
)

// honest is a fast path with the verdicts of a second reference. It passes packets up that it cannot send: those to
// unknown hosts and those with wrong UDP checksums.
type honest struct {
	net *scionpkt.Network
	j   *Judge
	// last is the reference's result for the last frame.
	last Result
}

func (h *honest) Run(frame []byte, _ int) (Outcome, error) {
	h.last = h.j.Process(frame)
	res := h.last
	pass := Outcome{Verdict: Pass, Frame: frame}
	if res.Kind == Dropped && res.Ingress >= 0 {
		return Outcome{Verdict: Drop, Frame: frame}, nil
	}
	if res.Kind != Forwarded || res.sum != 0xffff {
		return pass, nil
	}
	link := h.net.Links[res.Egress]
	o := scionpkt.Outer{
		SrcMAC: h.net.Devices[link.Device].MAC, DstMAC: link.NextHop,
		Src: res.Src, Dst: res.Dst, ZeroChecksum: res.zeroChecksum,
	}
	if link.Scope == scionpkt.Internal {
		host := h.net.Host(res.Dst.Addr())
		if host == nil {
			return pass, nil
		}
		o.DstMAC = host.MAC
	}
	out, err := o.Frame(res.Payload)
	return Outcome{Verdict: Redirect, IfIndex: h.net.Devices[link.Device].IfIndex, Frame: out}, err
}

// claim is the outcome of an honest fast path that a lie may change.
type claim struct {
	// in is the frame that came in, ref the reference's result for it.
	in  []byte
	out *Outcome
	ref Result
	// l is the layout of out.Frame.
	l   scionpkt.Layout
	net *scionpkt.Network
}

// liar is a fast path that changes the honest outcome by a lie.
type liar struct {
	*honest
	lie func(*claim)
}

func (l *liar) Run(frame []byte, dev int) (Outcome, error) {
	out, err := l.honest.Run(frame, dev)
	out.Frame = append([]byte(nil), out.Frame...)
	layout, _ := scionpkt.Locate(out.Frame)
	l.lie(&claim{in: frame, out: &out, ref: l.last, l: layout, net: l.net})
	return out, err
}

// sentOnly returns the lie that changes frames which are redirected.
func sentOnly(change func(f []byte, l scionpkt.Layout) []byte,
) func(*claim) {
	return func(c *claim) {
		if c.out.Verdict == Redirect {
			c.out.Frame = change(c.out.Frame, c.l)
		}
	}
}

// repaired is sentOnly with correct lengths and checksums after the change.
func repaired(change func(f []byte, l scionpkt.Layout) []byte,
) func(*claim) {
	return sentOnly(func(f []byte, l scionpkt.Layout) []byte {
		zero := !l.IPv6 && f[l.UDP+6] == 0 && f[l.UDP+7] == 0
		f = change(f, l)
		scionpkt.FixOuter(f)
		if zero {
			f[l.UDP+6], f[l.UDP+7] = 0, 0
		}
		return f
	})
}

// TestLiesAreCaught checks that a trial fails for each lie, with an error that names it.
func TestLiesAreCaught(t *testing.T) {
	lies := []struct {
		name, want string
		lie        func(*claim)
	}{
		{"payload byte", "another SCION packet", repaired(func(f []byte, l scionpkt.Layout) []byte {
			f[len(f)-1] ^= 1
			return f
		})},
		{"path not advanced", "another SCION packet", func(c *claim) {
			if in0, ok := scionpkt.Locate(c.in); ok && c.out.Verdict == Redirect {
				c.out.Frame = append(c.out.Frame[:c.l.SCION], c.in[in0.SCION:]...)
				scionpkt.FixOuter(c.out.Frame)
			}
		}},
		{"packet cut", "another SCION packet", repaired(func(f []byte, _ scionpkt.Layout) []byte {
			return f[:len(f)-1]
		})},
		{"trailing byte", "behind the IP datagram", sentOnly(func(f []byte, _ scionpkt.Layout) []byte {
			return append(f, 0)
		})},
		{"UDP length", "UDP length", sentOnly(func(f []byte, l scionpkt.Layout) []byte {
			f[l.UDP+5]++
			return f
		})},
		{"IPv4 length", "IPv4 total length", sentOnly(func(f []byte, l scionpkt.Layout) []byte {
			if !l.IPv6 {
				f[scionpkt.EthernetLen+3]++
			}
			return f
		})},
		{"IPv6 length", "IPv6 payload length", sentOnly(func(f []byte, l scionpkt.Layout) []byte {
			if l.IPv6 {
				f[scionpkt.EthernetLen+5]++
			}
			return f
		})},
		{"IP checksum", "IPv4 header checksum", sentOnly(func(f []byte, l scionpkt.Layout) []byte {
			if !l.IPv6 {
				f[scionpkt.EthernetLen+11] ^= 1
			}
			return f
		})},
		{"fragment", "fragment", repaired(func(f []byte, l scionpkt.Layout) []byte {
			if !l.IPv6 {
				f[scionpkt.EthernetLen+6] |= 0x20
			}
			return f
		})},
		{"time to live", "time to live", repaired(func(f []byte, l scionpkt.Layout) []byte {
			if !l.IPv6 {
				f[scionpkt.EthernetLen+8] = 0
			}
			return f
		})},
		{"hop limit", "hop limit", repaired(func(f []byte, l scionpkt.Layout) []byte {
			if l.IPv6 {
				f[scionpkt.EthernetLen+7] = 0
			}
			return f
		})},
		{"UDP checksum", "UDP checksum wrong", sentOnly(func(f []byte, l scionpkt.Layout) []byte {
			if f[l.UDP+6]|f[l.UDP+7] != 0 {
				f[l.UDP+7]++
			}
			return f
		})},
		{"checksum left out", "UDP checksum absent: true", sentOnly(
			func(f []byte, l scionpkt.Layout) []byte {
				if !l.IPv6 {
					f[l.UDP+6], f[l.UDP+7] = 0, 0
				}
				return f
			})},
		{"checksum left out on IPv6", "no UDP checksum on IPv6", sentOnly(
			func(f []byte, l scionpkt.Layout) []byte {
				if l.IPv6 {
					f[l.UDP+6], f[l.UDP+7] = 0, 0
				}
				return f
			})},
		{"checksum added", "UDP checksum absent: false", sentOnly(
			func(f []byte, _ scionpkt.Layout) []byte {
				scionpkt.FixOuter(f)
				return f
			})},
		{"wrong checksum corrected", "UDP checksum wrong", func(c *claim) {
			if c.ref.Kind != Forwarded || c.ref.sum == 0xffff {
				return
			}
			link := (&scionpkt.Outer{Src: c.ref.Src, Dst: c.ref.Dst})
			link.DstMAC, link.SrcMAC = c.net.Links[c.ref.Egress].NextHop,
				c.net.Devices[c.net.Links[c.ref.Egress].Device].MAC
			if h := c.net.Host(c.ref.Dst.Addr()); h != nil && c.ref.Egress == 0 {
				link.DstMAC = h.MAC
			}
			f, err := link.Frame(c.ref.Payload)
			if err == nil {
				*c.out = Outcome{Verdict: Redirect, Frame: f}
			}
		}},
		{"destination port", "sent to", repaired(func(f []byte, l scionpkt.Layout) []byte {
			f[l.UDP+3] ^= 1
			return f
		})},
		{"source port", "sent from", repaired(func(f []byte, l scionpkt.Layout) []byte {
			f[l.UDP+1] ^= 1
			return f
		})},
		{"destination address", "sent to", repaired(func(f []byte, l scionpkt.Layout) []byte {
			f[l.UDP-1] ^= 1
			return f
		})},
		{"destination MAC", "destination MAC", sentOnly(func(f []byte, _ scionpkt.Layout) []byte {
			f[5] ^= 1
			return f
		})},
		{"source MAC", "source MAC", sentOnly(func(f []byte, _ scionpkt.Layout) []byte {
			f[11] ^= 1
			return f
		})},
		{"device", "redirected to device", func(c *claim) {
			if c.out.Verdict == Redirect {
				c.out.IfIndex++
			}
		}},
		{"sent back", "out of the device it came from", func(c *claim) {
			if c.out.Verdict == Redirect {
				c.out.Verdict = Tx
			}
		}},
		{"forwards what is dropped", "forwarded a packet that the reference dropped", func(c *claim) {
			if c.ref.Kind == Dropped {
				c.out.Verdict = Redirect
			}
		}},
		{"forwards what is answered", "forwarded a packet that the reference answered", func(c *claim) {
			if c.ref.Kind == Answered {
				c.out.Verdict = Redirect
			}
		}},
		{"drops what is forwarded", "dropped a packet that the reference forwarded", func(c *claim) {
			if c.ref.Kind == Forwarded {
				c.out.Verdict = Drop
			}
		}},
		{"drops what is answered", "dropped a packet that the reference answered", func(c *claim) {
			if c.ref.Kind == Answered {
				c.out.Verdict = Drop
			}
		}},
		{"passes a changed frame", "passed up a changed frame", func(c *claim) {
			if c.out.Verdict == Pass {
				c.out.Frame[len(c.out.Frame)-1] ^= 1
			}
		}},
		{"gives up", "XDP_ABORTED", func(c *claim) {
			c.out.Verdict = Aborted
		}},
		{"lazy", "left a valid packet to the slow path", func(c *claim) {
			*c.out = Outcome{Verdict: Pass, Frame: c.in}
		}},
	}
	for _, lie := range lies {
		t.Run(lie.name, func(t *testing.T) {
			rng, n := newNetwork(1, scionpkt.Mixes()[0])
			fast := &liar{&honest{net: n, j: start(t, n)}, lie.lie}
			trial := Trial{Net: n, Judge: start(t, n), Fast: fast, Rand: rng}
			err := trial.Run(4000)
			if err == nil {
				t.Fatal("not caught")
			}
			if !strings.Contains(err.Error(), lie.want) {
				t.Fatalf("caught for another reason than %q:\n%v", lie.want, err)
			}
		})
	}
}

// TestWrongChecksumMayStayWrong checks that a wrong UDP checksum has to stay wrong by the same amount, as in a fast path
// that updates it by the difference.
func TestWrongChecksumMayStayWrong(t *testing.T) {
	rng, n := newNetwork(2, scionpkt.Mixes()[1])
	j := start(t, n)
	s, ok := scionpkt.RandomIn(rng, n, scionpkt.ExternalToExternal)
	if !ok {
		t.Fatal("no way through the network")
	}
	s.Outer.ZeroChecksum = false
	frame, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	l, _ := scionpkt.Locate(frame)
	sum := binary.BigEndian.Uint16(frame[l.UDP+6:])
	binary.BigEndian.PutUint16(frame[l.UDP+6:], sum^0x0100)
	ref := j.Process(frame)
	out, err := (&honest{net: n, j: j}).Run(frame, 0)
	if err != nil || out.Verdict != Pass {
		t.Fatalf("verdict %s, error %v", out.Verdict, err)
	}
	link := n.Links[ref.Egress]
	o := scionpkt.Outer{
		SrcMAC: n.Devices[link.Device].MAC, DstMAC: link.NextHop, Src: ref.Src, Dst: ref.Dst,
	}
	f, err := o.Frame(ref.Payload)
	if err != nil {
		t.Fatal(err)
	}
	fl, _ := scionpkt.Locate(f)
	if err := j.Compare(Outcome{Verdict: Redirect, Frame: f}, ref); err == nil {
		t.Error("a checksum that was corrected on the way is accepted")
	}
	// f has a correct checksum. Adding the wrong sum makes it wrong by the same amount.
	want := uint32(binary.BigEndian.Uint16(f[fl.UDP+6:])) + uint32(ref.sum)
	binary.BigEndian.PutUint16(f[fl.UDP+6:], uint16(want>>16+want&0xffff))
	if err := j.Compare(Outcome{Verdict: Redirect, Frame: f}, ref); err != nil {
		t.Error(err)
	}
}
