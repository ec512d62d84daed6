// SPDX-License-Identifier: Apache-2.0

package scionplane_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/scionproto/scion/pkg/addr"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// Offsets in a frame of scionbed.TransitFrame, in bytes.
const (
	frameSrcIP    = scionpkt.EthernetLen + 12
	frameDstIP    = frameSrcIP + 4
	frameSrcPort  = scionpkt.EthernetLen + scionpkt.IPv4Len
	frameDstPort  = frameSrcPort + 2
	frameProtocol = scionpkt.EthernetLen + scionpkt.IPv4Len + scionpkt.UDPLen + 4 // next header
	framePathType = frameProtocol + 4
)

// between returns a copy of a frame with other outer addresses and ports.
func between(frame []byte, src, dst netip.AddrPort) []byte {
	frame = append([]byte(nil), frame...)
	copy(frame[frameSrcIP:], src.Addr().AsSlice())
	copy(frame[frameDstIP:], dst.Addr().AsSlice())
	binary.BigEndian.PutUint16(frame[frameSrcPort:], src.Port())
	binary.BigEndian.PutUint16(frame[frameDstPort:], dst.Port())
	scionpkt.FixOuter(frame)
	return frame
}

// puntBed is a router with three links. Each limit of punts passes a few packets, and then none for years.
type puntBed struct {
	t      *testing.T
	inst   scionplane.Plane
	onehop []byte
	bfd    []byte
	// service has a frame to a service of the AS by the ID of the interface that it comes in at.
	service map[uint16][]byte
}

func newPuntBed(t *testing.T) *puntBed {
	testbed.InNamespace(t)
	in := testbed.AddVeth(t, "a0", "a1")
	testbed.AddVeth(t, "b0", "b1")
	c := scionbed.Config(1, 2)
	c.Links = append(c.Links, scionplane.Link{
		Name: "sibling", Scope: scionplane.ScopeSibling,
		Local: c.Links[0].Local, Remote: netip.MustParseAddrPort("10.0.0.2:30042"),
	})
	c.Services = []netip.Addr{netip.MustParseAddr("10.0.0.50")}
	b := &puntBed{t: t, inst: scionbed.Attach(t, c, "a0", "b0")}
	// Both devices have the same MAC address, so that a frame is valid at both.
	testbed.SetMAC(t, &net.Interface{Name: "b0", HardwareAddr: in.HardwareAddr})
	b.must(b.inst.Refresh())
	b.must(b.inst.AddKey(0, scionbed.Key))
	b.must(b.inst.SetLinkUp(scionbed.LinkIndex(t, c, "2"), true))
	for n, r := range datapath.Reasons() {
		if r.Verdict == datapath.VerdictPunt {
			b.limit(uint32(n), bpfobj.PipelineLimit{Interval: 1 << 58, Burst: 0})
		}
	}
	b.onehop = append([]byte(nil), scionbed.TransitFrame(t, in, scionbed.Key)...)
	b.onehop[framePathType] = 2
	b.bfd = append([]byte(nil), b.onehop...)
	b.bfd[frameProtocol] = 203
	b.service = make(map[uint16][]byte)
	for _, id := range []uint16{1, 2} {
		b.service[id] = scionbed.SizedTransitFrame(t, in, scionbed.Key, 64, func(s *scionpkt.Spec) {
			s.DstIA, s.DstHost = scionbed.IA, addr.MustParseHost("CS")
			hops := s.Segments[0].Hops
			s.Segments[0].Hops = hops[:2]
			hops[1].ConsIngress, hops[1].ConsEgress = id, 0
		})
	}
	return b
}

// limit sets the limit of a reason, by its index.
func (b *puntBed) limit(reason uint32, l bpfobj.PipelineLimit) {
	b.t.Helper()
	b.must(b.inst.Map(bpfobj.PipelineMapLimits).Put(reason, l))
}

// noLimits removes the limits of all punts.
func (b *puntBed) noLimits() {
	for n, r := range datapath.Reasons() {
		if r.Verdict == datapath.VerdictPunt {
			b.limit(uint32(n), bpfobj.PipelineLimit{})
		}
	}
}

func (b *puntBed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// send puts a frame through the program count times. It returns how often the frame was passed up and how often a limit
// kept it. All have to be counted under reason.
func (b *puntBed) send(frame []byte, iface, reason string, count int) (up, limited uint64) {
	b.t.Helper()
	read := func() (up, limited uint64) {
		port, _, _ := testbed.Counted(b.t, b.inst, iface)
		for _, r := range port.Reasons {
			switch {
			case r.Verdict+" "+r.Name != reason:
			case r.Limited:
				limited = r.Packets
			default:
				up = r.Packets
			}
		}
		return up, limited
	}
	up0, limited0 := read()
	testbed.Feed(b.t, b.inst, frame, iface, count)
	up1, limited1 := read()
	if got := up1 - up0 + limited1 - limited0; got != uint64(count) {
		port, _, _ := testbed.Counted(b.t, b.inst, iface)
		b.t.Fatalf("%d of %d packets are %s: %+v", got, count, reason, port.Reasons)
	}
	return up1 - up0, limited1 - limited0
}

// flood sends until nothing more is passed up.
func (b *puntBed) flood(frame []byte, iface, reason string) {
	b.t.Helper()
	b.send(frame, iface, reason, 50)
	if up, _ := b.send(frame, iface, reason, 5); up != 0 {
		b.t.Fatalf("%s by %s: after 50 packets %d more passed up", reason, iface, up)
	}
}

// passes checks that a packet is passed up in spite of those before.
func (b *puntBed) passes(who string, frame []byte, iface, reason string) {
	b.t.Helper()
	if up, _ := b.send(frame, iface, reason, 1); up != 1 {
		b.t.Errorf("%s: limited as %s, want it passed up", who, reason)
	}
}

// TestLimitsAreNotShared checks that packets of one neighbor, of the hosts behind one interface, or of the hosts of the AS
// do not use up the limits of others.
func TestLimitsAreNotShared(t *testing.T) {
	b := newPuntBed(t)
	c := b.inst.Config()
	inside := c.Links[0].Local
	host, service := netip.MustParseAddrPort("10.0.0.77:40000"), netip.MustParseAddrPort("10.0.0.50:30252")
	byLink := func(frame []byte, n int) []byte { return between(frame, c.Links[n].Remote, c.Links[n].Local) }

	const onehop, bfd, toService = "punt scion-onehop", "punt scion-bfd", "punt scion-service"
	b.flood(between(b.onehop, host, inside), "a0", onehop)
	b.passes("beacon of link 1 after a flood from inside", byLink(b.onehop, 1), "a0", onehop)
	b.passes("beacon of link 2 after a flood from inside", byLink(b.onehop, 2), "b0", onehop)
	b.passes("one-hop packet of a sibling after a flood from inside", byLink(b.onehop, 3), "a0", onehop)
	b.passes("beacon of the control service after a flood from inside", between(b.onehop, service, inside), "a0", onehop)
	b.passes("one-hop packet from inside by another interface", between(b.onehop, host, inside), "b0", onehop)

	b.flood(byLink(b.bfd, 1), "a0", bfd)
	b.passes("BFD of link 2 after a flood of it by link 1", byLink(b.bfd, 2), "a0", bfd)
	b.passes("BFD of a sibling after a flood of it by link 1", byLink(b.bfd, 3), "a0", bfd)

	b.flood(byLink(b.service[1], 1), "a0", toService)
	b.passes("request to the control service by link 2 after a flood of them by link 1",
		byLink(b.service[2], 2), "b0", toService)
}

// TestNever checks that the limit datapath.NoPacket also holds for each link's own limit.
func TestNever(t *testing.T) {
	b := newPuntBed(t)
	b.limit(bpfobj.PipelineReasonPUNT_SCION_ONEHOP.Index(), datapath.NoPacket())
	c := b.inst.Config()
	for n := 1; n <= 3; n++ {
		if up, _ := b.send(between(b.onehop, c.Links[n].Remote, c.Links[n].Local), "a0", "punt scion-onehop", 20); up != 0 {
			t.Errorf("%d packets of link %s passed up", up, c.Links[n].Name)
		}
	}
}
