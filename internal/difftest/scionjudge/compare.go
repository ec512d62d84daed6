// SPDX-License-Identifier: Apache-2.0

package scionjudge

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"culvert/internal/scion/scionpkt"
)

// Verdict is an XDP program's return code.
type Verdict uint32

// The verdicts, numbered as enum xdp_action.
const (
	Aborted Verdict = iota
	Drop
	Pass
	Tx
	Redirect
)

// String names the verdict as enum xdp_action does.
func (v Verdict) String() string {
	if int(v) < 5 {
		return [...]string{"XDP_ABORTED", "XDP_DROP", "XDP_PASS", "XDP_TX", "XDP_REDIRECT"}[v]
	}
	return fmt.Sprintf("XDP verdict %d", uint32(v))
}

// Outcome is what a fast path did with a frame.
type Outcome struct {
	Verdict Verdict
	// IfIndex is the device that a redirected frame leaves on, 0 if it is not known. The MAC
	// addresses are checked in any case.
	IfIndex int
	// Frame is the frame afterwards.
	Frame []byte
}

// FastPath handles frames by the same rules as the reference, or leaves them alone.
type FastPath interface {
	// Run handles one frame that arrives on the given device. It does not keep or change it.
	Run(frame []byte, ifIndex int) (Outcome, error)
}

// Compare returns what is wrong with the outcome of a fast path, given the result of Process for the
// same frame. Three outcomes are right:
//   - passed on unchanged: the slow path gives its own answer;
//   - sent out, if the reference forwards, with the same SCION packet, between the same underlay
//     addresses, from the right device to the right neighbor, with right outer headers. An absent
//     UDP checksum stays absent on IPv4. One that was wrong must stay wrong by as much, so that
//     the next receiver drops what the host's own stack would have dropped here;
//   - dropped, if the reference drops without an answer.
func (j *Judge) Compare(fast Outcome, ref Result) error {
	switch fast.Verdict {
	case Pass:
		if !bytes.Equal(fast.Frame, ref.frame) {
			return fmt.Errorf("passed up a changed frame: %s", firstDifference(fast.Frame, ref.frame))
		}
		return nil
	case Drop:
		if ref.Kind != Dropped {
			return fmt.Errorf("dropped a packet that the reference %s", ref)
		}
		return nil
	case Tx, Redirect:
		if ref.Kind != Forwarded {
			return fmt.Errorf("forwarded a packet that the reference %s", ref)
		}
		return j.compareForwarded(fast, ref)
	default:
		return fmt.Errorf("ended with %s", fast.Verdict)
	}
}

// String describes the kind, the link and the note.
func (r Result) String() string {
	s := r.Kind.String()
	if r.Kind != Dropped {
		s += fmt.Sprintf(" on link %d to %s", r.Egress, r.Dst)
	}
	if r.Note != "" {
		s += " (" + r.Note + ")"
	}
	return s
}

func (j *Judge) compareForwarded(fast Outcome, ref Result) error {
	f := fast.Frame
	l, ok := scionpkt.Locate(f)
	if !ok {
		return fmt.Errorf("sent a frame without plain IP and UDP headers")
	}
	// What lies behind the IP datagram in a frame is padding and no part of it. It may go along.
	end := datagramEnd(f, l)
	if got, before := len(f)-end, len(ref.frame)-ref.end; got != 0 && got != before {
		return fmt.Errorf("%d bytes behind the IP datagram, before: %d", got, before)
	}
	f = f[:end]
	src, dst := addresses(f, l)
	if src != ref.Src {
		return fmt.Errorf("sent from %s, the reference from %s", src, ref.Src)
	}
	if dst != ref.Dst && !slices.Contains(ref.services, dst) {
		return fmt.Errorf("sent to %s, the reference to %s", dst, ref.Dst)
	}
	if err := j.compareDevice(fast, ref, dst.Addr()); err != nil {
		return err
	}
	if !bytes.Equal(f[l.SCION:], ref.Payload) {
		return fmt.Errorf("sent another SCION packet: %s", firstDifference(f[l.SCION:], ref.Payload))
	}
	return compareOuter(f, l, ref)
}

// compareDevice checks the device and the MAC addresses.
func (j *Judge) compareDevice(fast Outcome, ref Result, dst netip.Addr) error {
	egress := &j.net.Links[ref.Egress]
	dev := &j.net.Devices[egress.Device]
	if fast.Verdict == Redirect && fast.IfIndex != 0 && fast.IfIndex != dev.IfIndex {
		return fmt.Errorf("redirected to device %d, want %d", fast.IfIndex, dev.IfIndex)
	}
	if ingress := j.net.Links[ref.Ingress]; fast.Verdict == Tx && ingress.Device != egress.Device {
		return fmt.Errorf("sent back out of the device it came from, want device %d", dev.IfIndex)
	}
	next := egress.NextHop
	if egress.Scope == scionpkt.Internal {
		h := j.net.Host(dst)
		if h == nil {
			return fmt.Errorf("sent to %s, whose next hop nobody knows", dst)
		}
		next = h.MAC
	}
	if got := [6]byte(fast.Frame[0:6]); got != next {
		return fmt.Errorf("destination MAC %x, want %x", got, next)
	}
	if got := [6]byte(fast.Frame[6:12]); got != dev.MAC {
		return fmt.Errorf("source MAC %x, want %x", got, dev.MAC)
	}
	return nil
}

// datagramEnd returns the end of the IP datagram by its length field, within the frame and not before
// the end of the UDP header.
func datagramEnd(f []byte, l scionpkt.Layout) int {
	ip := f[scionpkt.EthernetLen:]
	end := scionpkt.EthernetLen + int(binary.BigEndian.Uint16(ip[2:]))
	if l.IPv6 {
		end = scionpkt.EthernetLen + scionpkt.IPv6Len + int(binary.BigEndian.Uint16(ip[4:]))
	}
	return min(len(f), max(end, l.SCION))
}

func addresses(f []byte, l scionpkt.Layout) (src, dst netip.AddrPort) {
	ip, udp := f[scionpkt.EthernetLen:], f[l.UDP:]
	sp, dp := binary.BigEndian.Uint16(udp[0:]), binary.BigEndian.Uint16(udp[2:])
	if l.IPv6 {
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(ip[8:24])), sp),
			netip.AddrPortFrom(netip.AddrFrom16([16]byte(ip[24:40])), dp)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[12:16])), sp),
		netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[16:20])), dp)
}

// compareOuter checks lengths, hop limit, fragmentation and checksums of a frame sent.
func compareOuter(f []byte, l scionpkt.Layout, ref Result) error {
	ip, udp := f[scionpkt.EthernetLen:], f[l.UDP:]
	if n := int(binary.BigEndian.Uint16(udp[4:])); n != len(udp) {
		return fmt.Errorf("UDP length %d, want %d", n, len(udp))
	}
	if l.IPv6 {
		if n := int(binary.BigEndian.Uint16(ip[4:])); n != len(udp) {
			return fmt.Errorf("IPv6 payload length %d, want %d", n, len(udp))
		}
		if ip[7] == 0 {
			return fmt.Errorf("IPv6 hop limit 0")
		}
	} else {
		if n := int(binary.BigEndian.Uint16(ip[2:])); n != len(ip) {
			return fmt.Errorf("IPv4 total length %d, want %d", n, len(ip))
		}
		if ip[8] == 0 {
			return fmt.Errorf("IPv4 time to live 0")
		}
		if binary.BigEndian.Uint16(ip[6:])&0xbfff != 0 {
			return fmt.Errorf("IPv4 fragment bits %#x", ip[6:8])
		}
		if scionpkt.Sum(ip[:scionpkt.IPv4Len]) != 0xffff {
			return fmt.Errorf("IPv4 header checksum wrong")
		}
	}
	absent := udp[6] == 0 && udp[7] == 0
	switch {
	case absent && l.IPv6:
		return fmt.Errorf("no UDP checksum on IPv6")
	case absent != (ref.zeroChecksum && !l.IPv6):
		return fmt.Errorf("UDP checksum absent: %t, before: %t", absent, ref.zeroChecksum)
	case absent:
		return nil
	}
	if sum := scionpkt.UDPSum(f, l); sum != ref.sum {
		return fmt.Errorf("UDP checksum wrong: the sum is %#04x, want %#04x", sum, ref.sum)
	}
	return nil
}

// firstDifference describes the first difference of two byte slices.
func firstDifference(got, want []byte) string {
	n := min(len(got), len(want))
	for i := range n {
		if got[i] != want[i] {
			return fmt.Sprintf("byte %d is %#02x, want %#02x", i, got[i], want[i])
		}
	}
	return fmt.Sprintf("%d bytes, want %d", len(got), len(want))
}
