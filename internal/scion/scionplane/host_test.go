// SPDX-License-Identifier: Apache-2.0

package scionplane_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/scionproto/scion/pkg/addr"

	"culvert/internal/bpfobj"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// inboundFrame returns a frame that comes in by a0 at interface 1, for an end host of the AS.
func inboundFrame(t *testing.T, host netip.Addr) []byte {
	t.Helper()
	return scionbed.SizedTransitFrame(t, testbed.Device(t, "a0"), scionbed.Key, 64, func(s *scionpkt.Spec) {
		s.DstIA, s.DstHost = scionbed.IA, addr.HostIP(host)
		hops := s.Segments[0].Hops
		s.Segments[0].Hops = hops[:2]
		hops[1].ConsEgress = 0
	})
}

// TestHostReasons checks that packets to hosts without a known next hop have another reason, and so another limit, than
// packets to hosts that only the kernel reaches. Only the former hosts are asked for.
func TestHostReasons(t *testing.T) {
	b := newPuntBed(t)
	b.noLimits()
	host, other := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.8")
	hop := scionplane.NextHop{IfIndex: testbed.Device(t, "b0").Index, DstMAC: [6]byte{2, 0, 0, 0, 0, 9}, MTU: 1500}
	const unknown, kernel, forwarded = "punt scion-host-unknown", "punt scion-host-kernel", "fwd scion-in"

	frame := inboundFrame(t, host)
	b.passes("unknown host", frame, "a0", unknown)
	b.must(b.inst.SetHost(host, scionplane.NextHop{}))
	b.passes("host that the kernel reaches", frame, "a0", kernel)
	b.must(b.inst.SetHost(host, hop))
	b.send(frame, "a0", forwarded, 1)
	b.must(b.inst.DeleteHost(host))
	b.passes("unknown again", frame, "a0", unknown)
	b.passes("unknown link", scionbed.TransitFrame(t, testbed.Device(t, "a0"), scionbed.Key), "a0", "punt scion-next-hop")
	b.passes("another unknown host", inboundFrame(t, other), "a0", unknown)

	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	var wanted []netip.Addr
	b.must(b.inst.WantedHosts(ctx, func(a netip.Addr) {
		if wanted = append(wanted, a); a == other {
			stop()
		}
	}))
	if len(wanted) != 3 || wanted[0] != host || wanted[1] != host || wanted[2] != other {
		t.Errorf("hosts asked for: %v, want %s twice, then %s", wanted, host, other)
	}
}

// TestFloodOfUnknownHosts floods the router with packets to hosts that do not exist. That uses up their limit of one link
// alone, but not the limits for services on this host, for links without next hop, and for hosts asked for by other links.
func TestFloodOfUnknownHosts(t *testing.T) {
	b := newPuntBed(t)
	c := b.inst.Config()
	here := netip.MustParseAddr("192.0.2.9")
	b.must(b.inst.SetHost(here, scionplane.NextHop{}))
	for n := range 50 {
		b.send(inboundFrame(t, netip.AddrFrom4([4]byte{192, 0, 3, byte(n)})), "a0", "punt scion-host-unknown", 1)
	}
	b.flood(inboundFrame(t, netip.MustParseAddr("192.0.2.7")), "a0", "punt scion-host-unknown")
	b.passes("packet to a service on this host", inboundFrame(t, here), "a0", "punt scion-host-kernel")
	b.passes("packet for a link without next hop", scionbed.TransitFrame(t, testbed.Device(t, "a0"), scionbed.Key), "a0", "punt scion-next-hop")
	frame := scionbed.SizedTransitFrame(t, testbed.Device(t, "a0"), scionbed.Key, 64, func(s *scionpkt.Spec) {
		s.DstIA, s.DstHost = scionbed.IA, addr.MustParseHost("192.0.2.8")
		hops := s.Segments[0].Hops
		s.Segments[0].Hops = hops[:2]
		hops[1].ConsIngress, hops[1].ConsEgress = 2, 0
	})
	b.passes("host wanted by link 2", between(frame, c.Links[2].Remote, c.Links[2].Local), "b0", "punt scion-host-unknown")
}

// TestHostUse checks that the programs note the time of the last packet to a host.
func TestHostUse(t *testing.T) {
	b := newPuntBed(t)
	host, idle := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.8")
	hop := scionplane.NextHop{IfIndex: testbed.Device(t, "b0").Index, DstMAC: [6]byte{2, 0, 0, 0, 0, 9}, MTU: 1500}
	const before = 1000
	for _, a := range []netip.Addr{host, idle} {
		raw := bpfobj.PipelineScionHost{Hop: scionplane.RawHop(hop), Used: before}
		b.must(b.inst.Map(bpfobj.PipelineMapScionHosts).Put(bpfobj.AddrWords(a), raw))
	}
	begun := scionplane.HostUsed(time.Now().Add(-time.Second))
	b.send(inboundFrame(t, host), "a0", "fwd scion-in", 1)
	used, err := b.inst.Hosts()
	b.must(err)
	if len(used) != 2 || used[host] < begun || used[host] > scionplane.HostUsed(time.Now()) || used[idle] != before {
		t.Errorf("hosts used at %v, want %s since %d and %s at %d", used, host, begun, idle, before)
	}
	// SetHost counts as use.
	b.must(b.inst.SetHost(idle, hop))
	if used, err = b.inst.Hosts(); err != nil || used[idle] < begun {
		t.Errorf("hosts used at %v, %v", used, err)
	}
}

// TestManyHosts checks that all hosts are listed when that takes several batches.
func TestManyHosts(t *testing.T) {
	b := newPuntBed(t)
	const many = 20_000
	for n := range many {
		b.must(b.inst.SetHost(netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), scionplane.NextHop{}))
	}
	used, err := b.inst.Hosts()
	b.must(err)
	if len(used) != many {
		t.Errorf("%d hosts listed, want %d", len(used), many)
	}
}
