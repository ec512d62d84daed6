// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/testbed"
)

// bed is a load balancer on interface lb0 whose backends are behind out0.
type bed struct {
	t       testing.TB
	inst    *datapath.Instance
	plane   *Plane
	in, out *net.Interface
}

var (
	clientMAC  = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	backendMAC = net.HardwareAddr{2, 0, 0, 0, 0, 9}
)

// testRing is a small prime, so that tests can fill rings by hand.
const testRing = 17

func newBed(t testing.TB, o Options) *bed {
	t.Helper()
	return newBedOf(t, o, datapath.Options{Name: "lb", Interfaces: []string{"lb0"}})
}

func newBedOf(t testing.TB, o Options, all datapath.Options) *bed {
	t.Helper()
	testbed.InNamespace(t)
	b := &bed{t: t, in: testbed.AddVeth(t, "lb0", "lb0p"), out: testbed.AddVeth(t, "out0", "out0p")}
	if o.RingSize == 0 {
		o.RingSize = testRing
	}
	all.Parts = append(all.Parts, NewPart(o))
	var err error
	if b.inst, err = datapath.Attach(all); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.inst.Close)
	if b.plane, err = View(b.inst); err != nil {
		t.Fatal(err)
	}
	b.transmits(true)
	b.vlans(b.in.Index, allVLANs()...)
	return b
}

// transmits tells the programs whether frames can be redirected to lb0. The kernel reports that of a veth only while its peer
// has NAPI on.
func (b *bed) transmits(on bool) {
	b.t.Helper()
	b.editPort(func(port *bpfobj.PipelinePort) { port.Xmit, port.Spread = bpfobj.Flag(on), 0 })
}

// editPort changes what the programs know of lb0.
func (b *bed) editPort(change func(port *bpfobj.PipelinePort)) {
	b.t.Helper()
	var port bpfobj.PipelinePort
	ports := b.inst.Map(bpfobj.PipelineMapPorts)
	b.must(ports.Lookup(uint32(b.in.Index), &port))
	change(&port)
	b.must(ports.Put(uint32(b.in.Index), port))
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// backend writes a backend of a VIP. It is reached over IPIP unless change says otherwise.
func (b *bed) backend(number, vip uint32, addr string, change ...func(*Backend)) Backend {
	b.t.Helper()
	backend := Backend{
		ID: NewBackendID(number, 1), VIP: vip, Addr: netip.MustParseAddr(addr), Encap: IPIP, GUEPort: 6080, Used: true,
		Hop: Hop{Port: b.out.Index, SrcMAC: [6]byte(b.out.HardwareAddr), DstMAC: [6]byte(backendMAC), MTU: 1500},
	}
	backend.Source = netip.MustParsePrefix("10.200.0.0/16")
	if backend.Addr.Is6() {
		backend.Source = netip.MustParsePrefix("fd00:200::/64")
	}
	for _, c := range change {
		c(&backend)
	}
	b.must(b.plane.SetBackend(backend))
	return backend
}

// vip writes a VIP, and a ring that has the backends in turn.
func (b *bed) vip(number uint32, addr string, proto uint8, backends []Backend, change ...func(*VIP)) {
	b.t.Helper()
	ap := netip.MustParseAddrPort(addr)
	v := VIP{Number: number, Empty: len(backends) == 0}
	for _, c := range change {
		c(&v)
	}
	b.ring(number, backends)
	b.must(b.plane.SetVIP(VIPKey{Addr: ap.Addr(), Proto: proto, Port: ap.Port()}, v))
}

func (b *bed) ring(vip uint32, backends []Backend) {
	b.t.Helper()
	ring := make([]BackendID, b.plane.Options().RingSize)
	for n := range ring {
		if len(backends) > 0 {
			ring[n] = backends[n%len(backends)].ID
		}
	}
	b.must(b.plane.SetRing(vip, ring))
}

// packet builds a frame to the load balancer, from a client to a service. transport is a *layers.TCP or *layers.UDP; packet
// sets its ports.
func (b *bed) packet(from, to string, transport gopacket.SerializableLayer, payload []byte, change ...func(gopacket.SerializableLayer)) []byte {
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

// run runs the program on a frame. It returns the XDP action, the frame that leaves, and verdict and reason as one string.
func (b *bed) run(frame []byte) (action uint32, out []byte, reason string) {
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

// expect runs the program on a frame and wants this verdict and reason. It returns the frame that leaves.
func (b *bed) expect(frame []byte, reason string) []byte {
	b.t.Helper()
	_, out, got := b.run(frame)
	if got != reason {
		b.t.Fatalf("it was counted as %q, want %q\n%x", got, reason, frame)
	}
	return out
}

// expectUnchanged is expect for a frame that leaves as it came.
func (b *bed) expectUnchanged(frame []byte, reason string) {
	b.t.Helper()
	if out := b.expect(frame, reason); !bytes.Equal(out, frame) {
		b.t.Fatalf("it was changed:\n%x\n%x", frame, out)
	}
}

// packetCase is a frame that leaves as it came, and the verdict and reason that are wanted for it.
type packetCase struct {
	name   string
	frame  []byte
	reason string
}

// expectAllUnchanged runs the program on the frame of each case.
func (b *bed) expectAllUnchanged(cases []packetCase) {
	b.t.Helper()
	for _, c := range cases {
		if _, out, got := b.run(c.frame); got != c.reason || !bytes.Equal(out, c.frame) {
			b.t.Errorf("%s: it was counted as %q, want %q, and leaves as\n%x, want\n%x", c.name, got, c.reason, out, c.frame)
		}
	}
}

// expectSent is expect for a frame that is sent to one of some backends. It returns that backend.
func (b *bed) expectSent(frame []byte, reason string, backends ...Backend) Backend {
	b.t.Helper()
	action, out, got := b.run(frame)
	if got != reason || action != testbed.XDPRedirect {
		b.t.Fatalf("it was counted as %q with action %d, want %q\n%x", got, action, reason, frame)
	}
	var err error
	for _, backend := range backends {
		if err = checkForwarded(frame, out, backend); err == nil {
			return backend
		}
	}
	b.t.Fatalf("%v\n%x\n%x", err, frame, out)
	return Backend{}
}

// changed returns a copy of a frame after a change.
func (b *bed) changed(frame []byte, change func([]byte)) []byte {
	f := bytes.Clone(frame)
	change(f)
	return f
}

type serializable = gopacket.SerializableLayer

// event reads a counter of a VIP.
func (b *bed) event(vip uint32, event bpfobj.PipelineLbEvent) (sum uint64, err error) {
	var perCPU []uint64
	err = b.inst.Map(bpfobj.PipelineMapLbEvents).Lookup(vip*uint32(bpfobj.PipelineLbEventLB_EVENTS)+uint32(event), &perCPU)
	for _, n := range perCPU {
		sum += n
	}
	return sum, err
}
