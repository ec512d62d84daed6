// SPDX-License-Identifier: Apache-2.0

package pipelinefuzz

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"culvert/internal/difftest/scionjudge"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/scion/scionplane"
)

// bfdOwn is the discriminator of a link's BFD session, 0 if the programs know none.
func bfdOwn(link int) uint32 {
	if link%3 == 0 {
		return 0
	}
	return 0x0bfd0000 | uint32(link)
}

// fillSCION writes the key and the next hops into the data plane. One link is down, one has a small MTU, one takes no
// frames of several buffers, and one has no known neighbor. One host has no known neighbor, and only the kernel can send to
// another. Links accept datagrams by their own devices only. Some have BFD sessions.
func (b *bed) fillSCION() error {
	plane := scionplane.Of(b.inst)
	if err := plane.AddKey(0, b.net.Key); err != nil {
		return err
	}
	hop := func(device int, mac [6]byte) scionplane.NextHop {
		d := b.net.Devices[device]
		return scionplane.NextHop{IfIndex: d.IfIndex, SrcMAC: d.MAC, DstMAC: mac, MTU: deviceMTU}
	}
	var external []int
	for i, l := range b.net.Links {
		if l.Scope == scionpkt.Internal {
			continue
		}
		if l.Scope == scionpkt.External {
			external = append(external, i)
		}
		nh := hop(l.Device, l.NextHop)
		if l.Scope == scionpkt.External {
			switch len(external) {
			case 1:
				nh.LinearOnly = true
			case 2:
				nh.MTU = 700
			case 3:
				nh = scionplane.NextHop{}
			}
		}
		if err := errors.Join(plane.SetLinkNextHop(i, nh), plane.SetLinkUp(i, true)); err != nil {
			return err
		}
	}
	down := external[len(external)-1]
	if err := errors.Join(plane.SetLinkUp(down, false), b.judge.SetLinkUp(down, false)); err != nil {
		return err
	}
	for n, h := range b.net.Hosts[1:] {
		nh := hop(b.net.Links[0].Device, h.MAC)
		if n == 0 {
			nh = scionplane.NextHop{}
		}
		if err := plane.SetHost(h.Addr, nh); err != nil {
			return err
		}
	}
	for i, l := range b.net.Links {
		err := plane.SetLinkAccept(i, scionplane.Accept{Devices: []int{b.net.Devices[l.Device].IfIndex}})
		if own := bfdOwn(i); own != 0 {
			err = errors.Join(err, plane.SetLinkBFD(i, scionplane.BFDSession{LocalDisc: own}))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// link returns the link with a frame's addresses, -1 for none. A link with a far end takes precedence over the internal one.
func (b *bed) link(f []byte) int {
	v := decode(f)
	sport, dport, ok := v.ports()
	if !ok || v.l4proto != protoUDP {
		return -1
	}
	src, dst, internal := netip.AddrPortFrom(v.src, sport), netip.AddrPortFrom(v.dst, dport), -1
	for i, l := range b.net.Links {
		switch {
		case l.Local != dst:
		case l.Scope == scionpkt.Internal:
			internal = i
		case l.Remote == src:
			return i
		}
	}
	return internal
}

// scionDrops are the reasons for which the reference drops packets too. Other reasons are culvert's own.
var scionDrops = map[string]bool{"drop scion-path": true, "drop scion-transit-src": true, "drop scion-src-service": true}

// checkSCION compares a packet with what the reference does, which does not know by which device it came in.
func (b *bed) checkSCION(tr trial, o outcome) error {
	if !b.on.scion {
		return errors.New("there is no SCION router")
	}
	link := b.link(tr.frame)
	if link < 0 {
		return errors.New("it is of no link")
	}
	if by := b.net.Links[link].Device; (by != tr.in) != (o.reason == "drop scion-interface") {
		return fmt.Errorf("packets of its link come by device %d", by)
	}
	bfd := b.isBFD(tr.frame, link)
	switch {
	case strings.HasSuffix(o.reason, " scion-bfd"):
		if bfd == no {
			return errors.New("it is no BFD packet of a session")
		}
		return checkBFD(tr, bfdOwn(link), o.reason == "drop scion-bfd")
	case bfd == yes && (o.reason == "punt scion-onehop" || o.reason == "punt scion-empty" || scionDrops[o.reason]):
		return errors.New("it is a BFD packet of a link")
	}
	if o.limited || strings.HasPrefix(o.reason, "drop ") && !scionDrops[o.reason] {
		return nil
	}
	return b.judge.Compare(scionjudge.Outcome{Verdict: scionjudge.Verdict(o.action), Frame: o.frame}, b.judge.Process(tr.frame))
}

// checkBFD checks whether a BFD packet was rightly dropped or passed, by the session's discriminator (RFC 5880, section 6.8.6).
func checkBFD(tr trial, own uint32, dropped bool) error {
	f := tr.frame[:tr.linear()] // the slow path reads the rest
	at, ok := scionpkt.Locate(f)
	if !ok || len(f) < at.SCION+6 {
		return errors.New("it is no SCION packet")
	}
	bfd := f[min(len(f), at.SCION+4*int(f[at.SCION+5])):]
	if len(bfd) < 12 {
		if dropped {
			return errors.New("there is too little of it to tell")
		}
		return nil
	}
	state, yours := bfd[1]>>6, be.Uint32(bfd[8:])
	begins := yours == 0 && state <= 1
	if of := own == 0 || yours == own || begins; of == dropped {
		return fmt.Errorf("state %d, your discriminator %#x, want %#x", state, yours, own)
	}
	return nil
}

// answer of a model that does not know everything.
type answer int

const (
	no answer = iota
	maybe
	yes
)

// isBFD reports whether a link's datagram is BFD as sessions send it. Hosts of the AS have no sessions. It does not read
// extension headers.
func (b *bed) isBFD(f []byte, link int) answer {
	at, ok := scionpkt.Locate(f)
	if !ok || len(f) < at.SCION+9 || b.net.Links[link].Scope == scionpkt.Internal || f[at.SCION+8] != 0 && f[at.SCION+8] != 2 {
		return no
	}
	switch f[at.SCION+4] {
	case 203:
		return yes
	case 200, 201:
		return maybe
	}
	return no
}

// checkNotSCION checks that a packet without a reason of the SCION router is not a plain datagram of a link.
func (b *bed) checkNotSCION(tr trial, o outcome) error {
	v := decode(tr.frame)
	if !b.on.scion || !b.untouched(tr, &v, o) || v.proto != protoUDP || v.frag || v.ip == 4 && v.head != 20 {
		return nil
	}
	link := b.link(tr.frame)
	if link < 0 || int(be.Uint16(v.packet[v.l4+4:])) != len(v.packet)-v.l4 || v.ip == 6 && be.Uint16(v.packet[v.l4+6:]) == 0 {
		return nil
	}
	// Nobody inside has such an address.
	l := b.net.Links[link]
	if l.Scope == scionpkt.Internal && (nobody(v.src) || v.src == l.Local.Addr() || v.src.Is4In6()) {
		return nil
	}
	return fmt.Errorf("a datagram of link %d, %+v, went past the SCION router", link, b.net.Links[link])
}
