// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"culvert/internal/bpfobj"
	"culvert/internal/testbed"
)

// balanceBed is a load balancer on interface lb0 whose backends are behind out0.
type balanceBed struct {
	t       testing.TB
	inst    *Instance
	plane   *BalancePlane
	in, out *net.Interface
}

var (
	clientMAC  = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	backendMAC = net.HardwareAddr{2, 0, 0, 0, 0, 9}
)

// balanceTestRing is a small prime, so that tests can fill rings by hand.
const balanceTestRing = 17

func newBalanceBed(t testing.TB, o BalanceOptions) *balanceBed {
	t.Helper()
	return newBalanceBedOf(t, o, Options{Name: "lb", Interfaces: []string{"lb0"}})
}

func newBalanceBedOf(t testing.TB, o BalanceOptions, all Options) *balanceBed {
	t.Helper()
	testbed.InNamespace(t)
	b := &balanceBed{t: t, in: testbed.AddVeth(t, "lb0", "lb0p"), out: testbed.AddVeth(t, "out0", "out0p")}
	if o.RingSize == 0 {
		o.RingSize = balanceTestRing
	}
	all.Parts = append(all.Parts, NewBalancePart(o))
	var err error
	if b.inst, err = Attach(all); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.inst.Close)
	if b.plane, err = b.inst.ViewBalance(); err != nil {
		t.Fatal(err)
	}
	b.transmits(true)
	b.vlans(b.in.Index, allVLANs()...)
	return b
}

// transmits says whether frames can be redirected to lb0. A veth tells so of itself only while its peer has NAPI on.
func (b *balanceBed) transmits(on bool) {
	b.t.Helper()
	var port bpfobj.PipelinePort
	ports := b.inst.maps[bpfobj.PipelineMapPorts]
	b.must(ports.Lookup(uint32(b.in.Index), &port))
	port.Xmit = bpfobj.Flag(on)
	b.must(ports.Put(uint32(b.in.Index), port))
}

func (b *balanceBed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// member makes member number of VIP vip, reached over IPIP unless changed.
func (b *balanceBed) member(number, vip uint32, addr string, change ...func(*BalanceMember)) BalanceMember {
	b.t.Helper()
	m := BalanceMember{
		Owner: NewBalanceOwner(number, 1), VIP: vip, Addr: netip.MustParseAddr(addr), Encap: BalanceIPIP, GUEPort: 6080, Used: true,
		Hop: BalanceHop{Port: b.out.Index, SrcMAC: [6]byte(b.out.HardwareAddr), DstMAC: [6]byte(backendMAC), MTU: 1500},
	}
	m.Source = netip.MustParsePrefix("10.200.0.0/16")
	if m.Addr.Is6() {
		m.Source = netip.MustParsePrefix("fd00:200::/64")
	}
	for _, c := range change {
		c(&m)
	}
	b.must(b.plane.SetMember(m))
	return m
}

// vip makes a VIP whose ring goes round the members.
func (b *balanceBed) vip(number uint32, addr string, proto uint8, members []BalanceMember, change ...func(*BalanceVIP)) {
	b.t.Helper()
	ap := netip.MustParseAddrPort(addr)
	v := BalanceVIP{Number: number, Empty: len(members) == 0}
	for _, c := range change {
		c(&v)
	}
	b.ring(number, members)
	b.must(b.plane.SetVIP(BalanceVIPKey{Addr: ap.Addr(), Proto: proto, Port: ap.Port()}, v))
}

func (b *balanceBed) ring(vip uint32, members []BalanceMember) {
	b.t.Helper()
	ring := make([]BalanceOwner, b.plane.Options().RingSize)
	for n := range ring {
		if len(members) > 0 {
			ring[n] = members[n%len(members)].Owner
		}
	}
	b.must(b.plane.SetRing(vip, ring))
}

// packet builds a frame to the load balancer from a client to a service; transport is a *layers.TCP or *layers.UDP,
// whose ports are filled in.
func (b *balanceBed) packet(from, to string, transport gopacket.SerializableLayer, payload []byte, change ...func(gopacket.SerializableLayer)) []byte {
	b.t.Helper()
	src, dst := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	eth := &layers.Ethernet{SrcMAC: clientMAC, DstMAC: b.in.HardwareAddr, EthernetType: layers.EthernetTypeIPv4}
	proto := layers.IPProtocolTCP
	if _, ok := transport.(*layers.UDP); ok {
		proto = layers.IPProtocolUDP
	}
	var network interface {
		gopacket.SerializableLayer
		gopacket.NetworkLayer
	}
	if dst.Addr().Is4() {
		network = &layers.IPv4{Version: 4, TTL: 61, Protocol: proto, Flags: layers.IPv4DontFragment, Id: 4711, SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}
	} else {
		eth.EthernetType = layers.EthernetTypeIPv6
		network = &layers.IPv6{Version: 6, HopLimit: 61, NextHeader: proto, SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}
	}
	switch l := transport.(type) {
	case *layers.TCP:
		l.SrcPort, l.DstPort = layers.TCPPort(src.Port()), layers.TCPPort(dst.Port())
		b.must(l.SetNetworkLayerForChecksum(network))
	case *layers.UDP:
		l.SrcPort, l.DstPort = layers.UDPPort(src.Port()), layers.UDPPort(dst.Port())
		b.must(l.SetNetworkLayerForChecksum(network))
	}
	for _, c := range change {
		c(eth)
		c(network)
		c(transport)
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	b.must(gopacket.SerializeLayers(buf, opts, eth, network, transport, gopacket.Payload(payload)))
	return buf.Bytes()
}

// run puts a frame through the program and tells what came of it.
func (b *balanceBed) run(frame []byte) (action uint32, out []byte, reason string) {
	b.t.Helper()
	_, before, _ := testbed.Counted(b.t, b.inst, "lb0")
	action, out, err := b.inst.TestRun(frame, "lb0")
	b.must(err)
	_, after, _ := testbed.Counted(b.t, b.inst, "lb0")
	for name, n := range after {
		if n != before[name] {
			if reason != "" || n != before[name]+1 {
				b.t.Fatalf("one packet was counted more than once: %v, then %v", before, after)
			}
			reason = name
		}
	}
	return action, out, reason
}

// expect is run for a frame that has to leave for a reason.
func (b *balanceBed) expect(frame []byte, reason string) []byte {
	b.t.Helper()
	_, out, got := b.run(frame)
	if got != reason {
		b.t.Fatalf("it left as %q, not as %q\n%x", got, reason, frame)
	}
	return out
}

// leaves is expect for a frame that nothing is done to.
func (b *balanceBed) leaves(frame []byte, reason string) {
	b.t.Helper()
	if out := b.expect(frame, reason); !bytes.Equal(out, frame) {
		b.t.Fatalf("it was changed:\n%x\n%x", frame, out)
	}
}

// sent is expect for a frame that has to leave to one of some members, which it returns.
func (b *balanceBed) sent(frame []byte, reason string, members ...BalanceMember) BalanceMember {
	b.t.Helper()
	action, out, got := b.run(frame)
	if got != reason || action != testbed.XDPRedirect {
		b.t.Fatalf("it left as %q with action %d, not as %q\n%x", got, action, reason, frame)
	}
	var err error
	for _, m := range members {
		if err = sentRight(frame, out, m); err == nil {
			return m
		}
	}
	b.t.Fatalf("%v\n%x\n%x", err, frame, out)
	return BalanceMember{}
}

// changed returns a frame with a change.
func (b *balanceBed) changed(frame []byte, change func([]byte)) []byte {
	f := bytes.Clone(frame)
	change(f)
	return f
}

type serializable = gopacket.SerializableLayer

// event reads a counter of a VIP.
func (b *balanceBed) event(vip uint32, event bpfobj.PipelineLbEvent) (sum uint64, err error) {
	var perCPU []uint64
	err = b.inst.maps[bpfobj.PipelineMapLbEvents].Lookup(vip*uint32(bpfobj.PipelineLbEventLB_EVENTS)+uint32(event), &perCPU)
	for _, n := range perCPU {
		sum += n
	}
	return sum, err
}
