// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/host/netdev"
	"culvert/internal/testbed"
)

const (
	protoTCP = 6
	protoUDP = 17
	client4  = "203.0.113.7:1234"
	client6  = "[2001:db8:7::7]:1234"
	vip4     = "192.0.2.1:80"
	vip6     = "[2001:db8::1]:80"
)

// TestKnownFlow turns the ring to another backend. A known flow keeps its backend.
func TestKnownFlow(t *testing.T) {
	b := newBed(t, Options{})
	one, two := b.backend(1, 0, "10.0.0.11"), b.backend(2, 0, "10.0.0.12")
	b.vip(0, vip4, protoTCP, []Backend{one, two})
	in := b.packet(client4, vip4, &layers.TCP{SYN: true}, nil)
	backend := b.expectSent(in, "fwd lb-new", one, two)
	other := one
	if backend.ID == one.ID {
		other = two
	}
	b.ring(0, []Backend{other})
	b.expectSent(b.packet(client4, vip4, &layers.TCP{ACK: true}, []byte("GET /")), "fwd lb-flow", backend)
	sum, err := b.plane.Traffic(backend.ID.Number())
	b.must(err)
	if want := (Traffic{Packets: 2, Bytes: 40 + 45, Flows: 1}); sum != want {
		t.Errorf("counted %+v, want %+v", sum, want)
	}
}

// encapsulations returns a backend for each combination of address family, encapsulation, VLAN and kind of source.
func encapsulations(b *bed) (all []Backend) {
	for _, to := range []struct {
		addr    string
		guePort uint16
	}{{"10.0.0.11", 6080}, {"fd00::11", 6081}} {
		for _, encap := range []Encap{IPIP, GUE, L2} {
			for _, vlan := range []uint16{0, packetTagged | 7} {
				for _, single := range []bool{false, true} {
					all = append(all, b.backend(uint32(1+len(all)), 0, to.addr, func(backend *Backend) {
						backend.Encap, backend.GUEPort, backend.Hop.VLAN, backend.Hop.MTU = encap, to.guePort, vlan, 9216
						if single {
							backend.Source = netip.PrefixFrom(backend.Source.Addr().Next(), backend.Source.Addr().BitLen())
						}
					}))
				}
			}
		}
	}
	return all
}

// packetTagged is PACKET_TAGGED of bpf/core/packet.h.
const packetTagged = 0x1000

// flowCase is a client, a VIP and a protocol.
type flowCase struct {
	name, client, vip string
	proto             uint8
}

// flowCases has both families and protocols.
var flowCases = []flowCase{
	{"TCP over IPv4", "203.0.113.7", "192.0.2.1", protoTCP},
	{"UDP over IPv4", "203.0.113.7", "192.0.2.1", protoUDP},
	{"TCP over IPv6", "2001:db8:7::7", "2001:db8::1", protoTCP},
	{"UDP over IPv6", "2001:db8:7::7", "2001:db8::1", protoUDP},
}

// TestEncapsulations sends packets of many sizes to each backend of encapsulations.
func TestEncapsulations(t *testing.T) {
	b := newBed(t, Options{})
	vip, port := uint32(0), uint16(1000)
	for _, backend := range encapsulations(b) {
		port++
		for _, c := range flowCases {
			to := netip.AddrPortFrom(netip.MustParseAddr(c.vip), port).String()
			b.vip(vip, to, c.proto, []Backend{backend})
			vip++
			for k, size := range []int{0, 1, 5, 6, 100, 1400, 4000, 8900} {
				var l4 gopacket.SerializableLayer = &layers.UDP{}
				if c.proto == protoTCP {
					l4 = &layers.TCP{ACK: true}
				}
				from := netip.AddrPortFrom(netip.MustParseAddr(c.client), uint16(2000+k)).String()
				in := b.packet(from, to, l4, make([]byte, size), func(l gopacket.SerializableLayer) {
					switch l := l.(type) {
					case *layers.IPv4:
						l.TOS = uint8(0xb8 | k&3)
					case *layers.IPv6:
						l.TrafficClass = uint8(0xb8 | k&3)
					}
				})
				for _, step := range []struct {
					frame  []byte
					reason string
				}{
					{in, "fwd lb-new"},
					{in, "fwd lb-flow"},
					{tagged(in, 0x2005), "fwd lb-flow"}, // a VLAN tag with a priority
				} {
					if b.expectSent(step.frame, step.reason, backend); t.Failed() {
						t.Fatalf("%+v, %s, %d bytes", backend, c.name, size)
					}
				}
			}
		}
	}
}

// tagged returns a copy of a frame with an 802.1Q tag.
func tagged(frame []byte, tci uint16) []byte {
	out := append(slices.Clone(frame[:12]), 0x81, 0)
	out = binary.BigEndian.AppendUint16(out, tci)
	return append(out, frame[12:]...)
}

// TestSpreads wants outer source, flow label and UDP port to be the same for all packets of a flow and to differ between flows.
func TestSpreads(t *testing.T) {
	const flows = 200
	source4 := func(f []byte) []byte { return f[26:30] }
	source6 := func(f []byte) []byte { return f[22:38] }
	label := func(f []byte) []byte { return []byte{f[15] & 15, f[16], f[17]} }
	port4 := func(f []byte) []byte { return f[34:36] }
	port6 := func(f []byte) []byte { return f[54:56] }
	for _, tt := range []struct {
		name, backend string
		encap         Encap
		fields        map[string]func(frame []byte) []byte
	}{
		{"ipip over IPv4", "10.0.0.11", IPIP, map[string]func([]byte) []byte{"source": source4}},
		{"ipip over IPv6", "fd00::11", IPIP, map[string]func([]byte) []byte{"source": source6, "label": label}},
		{"gue over IPv4", "10.0.0.11", GUE, map[string]func([]byte) []byte{"source": source4, "port": port4}},
		{"gue over IPv6", "fd00::11", GUE, map[string]func([]byte) []byte{"source": source6, "label": label, "port": port6}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t, Options{})
			backend := b.backend(1, 0, tt.backend, func(k *Backend) { k.Encap = tt.encap })
			const to = "192.0.2.1:80"
			b.vip(0, to, protoUDP, []Backend{backend})
			seen := make(map[string]map[string]bool)
			for field := range tt.fields {
				seen[field] = make(map[string]bool)
			}
			for n := range flows {
				in := b.packet(fmt.Sprintf("203.0.113.7:%d", 1000+n), to, &layers.UDP{}, make([]byte, 20))
				first := bytes.Clone(b.expect(in, "fwd lb-new"))
				if err := checkForwarded(in, first, backend); err != nil {
					t.Fatal(err)
				}
				if second := b.expect(in, "fwd lb-flow"); !bytes.Equal(first, second) {
					t.Fatalf("two packets of one flow have different outer headers:\n%x\n%x", first, second)
				}
				for field, of := range tt.fields {
					seen[field][string(of(first))] = true
				}
			}
			for field, values := range seen {
				if len(values) < flows*9/10 {
					t.Errorf("%d flows have %d different values of the outer %s", flows, len(values), field)
				}
			}
		})
	}
}

// TestMostSpecificVIP has VIPs of single ports and of all ports at one address.
func TestMostSpecificVIP(t *testing.T) {
	b := newBed(t, Options{})
	one, all, other := b.backend(1, 0, "10.0.0.11"), b.backend(2, 1, "10.0.0.12"), b.backend(3, 2, "10.0.0.13")
	b.vip(0, "192.0.2.1:80", protoTCP, []Backend{one})
	b.vip(1, "192.0.2.1:0", protoTCP, []Backend{all})
	b.vip(2, "192.0.2.1:443", protoTCP, []Backend{other})
	for to, want := range map[string]Backend{
		"192.0.2.1:80": one, "192.0.2.1:443": other, "192.0.2.1:81": all, "192.0.2.1:82": all,
	} {
		b.expectSent(b.packet(client4, to, &layers.TCP{SYN: true}, nil), "fwd lb-new", want)
	}
	b.expectUnchanged(b.packet(client4, "192.0.2.1:80", &layers.UDP{}, nil), "pass other")
	b.expectUnchanged(b.packet(client4, "192.0.2.2:80", &layers.TCP{SYN: true}, nil), "pass other")
	b.must(b.plane.DeleteVIP(VIPKey{Addr: netip.MustParseAddr("192.0.2.1"), Proto: protoTCP}))
	b.expectUnchanged(b.packet(client4, "192.0.2.1:82", &layers.TCP{ACK: true}, nil), "pass other")
	b.expectSent(b.packet(client4, "192.0.2.1:80", &layers.TCP{ACK: true}, nil), "fwd lb-flow", one)
}

// TestNotOurs wants packets that are not for the load balancer to be left alone.
func TestNotOurs(t *testing.T) {
	b := newBed(t, Options{})
	backend := b.backend(1, 0, "10.0.0.11")
	b.vip(0, vip4, protoTCP, []Backend{backend})
	b.vip(1, vip6, protoTCP, []Backend{backend})
	good4 := b.packet(client4, vip4, &layers.TCP{SYN: true}, []byte("payload"))
	good6 := b.packet(client6, vip6, &layers.TCP{SYN: true}, []byte("payload"))
	b.expectAllUnchanged([]packetCase{
		{"IPv4, another MAC address", b.changed(good4, func(f []byte) { f[5] ^= 1 }), "pass other"},
		{"IPv6, another MAC address", b.changed(good6, func(f []byte) { f[5] ^= 1 }), "pass other"},
		{"IPv4, IP version 7", b.changed(good4, func(f []byte) { f[14] = 0x70 }), "pass other"},
		{"IPv6, IP version 7", b.changed(good6, func(f []byte) { f[14] = 0x70 }), "pass other"},
		{"IPv4, wrong checksum", b.changed(good4, func(f []byte) { f[24] ^= 1 }), "pass other"},
		{"IPv4, SCTP", withProtocol(good4, 132), "pass other"},
	})
	for _, good := range [][]byte{good4, good6} {
		b.expectSent(good, "fwd lb-new", backend)
		for n := 14; n < len(good); n++ { // the frame is truncated
			_, out, reason := b.run(good[:n])
			if reason != "pass other" || !bytes.Equal(out, good[:n]) {
				t.Fatalf("the first %d of %d bytes were counted as %q", n, len(good), reason)
			}
		}
		for n := range 20 { // the IP packet ends within the TCP header, but the frame does not
			b.expectUnchanged(b.changed(good, func(f []byte) { setIPLen(f, n) }), "punt lb-headers")
		}
	}
}

// setIPLen sets the length of an untagged frame's IP packet to that of n bytes behind the IP header.
func setIPLen(f []byte, n int) {
	if f[12] == 0x86 {
		binary.BigEndian.PutUint16(f[18:], uint16(n))
		return
	}
	binary.BigEndian.PutUint16(f[16:], uint16(20+n))
	f[24], f[25] = 0, 0
	binary.BigEndian.PutUint16(f[24:], ^testbed.OnesSum(f[14:34]))
}

// TestHeaders wants packets to a VIP that have headers between those of IP and TCP to be left to the slow path.
func TestHeaders(t *testing.T) {
	b := newBed(t, Options{})
	backend := b.backend(1, 0, "10.0.0.11")
	b.vip(0, vip4, protoTCP, []Backend{backend})
	b.vip(1, vip6, protoTCP, []Backend{backend})
	const other4, other6 = "192.0.2.1:81", "[2001:db8::1]:81"
	const hopByHop, destinationOptions = 0, 60
	options := func(l gopacket.SerializableLayer) {
		if ip, ok := l.(*layers.IPv4); ok {
			ip.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
		}
	}
	b.expectAllUnchanged([]packetCase{
		{"IPv4 options, to a VIP", b.packet(client4, vip4, syn(), nil, options), "punt lb-headers"},
		{"IPv4 options, another port", b.packet(client4, other4, syn(), nil, options), "pass other"},
		{"IPv4 options, another protocol", b.packet(client4, vip4, &layers.UDP{}, nil, options), "pass other"},
		{"hop-by-hop options, to a VIP", extended(b.packet(client6, vip6, syn(), nil), hopByHop), "punt lb-headers"},
		{"hop-by-hop options, another port", extended(b.packet(client6, other6, syn(), nil), hopByHop), "pass other"},
		{"hop-by-hop options, another protocol", extended(b.packet(client6, vip6, &layers.UDP{}, nil), hopByHop), "pass other"},
		{"destination options, to a VIP", extended(b.packet(client6, vip6, syn(), nil), destinationOptions), "punt lb-headers"},
		{"destination options, another port", extended(b.packet(client6, other6, syn(), nil), destinationOptions), "pass other"},
		{"destination options, another protocol", extended(b.packet(client6, vip6, &layers.UDP{}, nil), destinationOptions), "pass other"},
	})
}

// extended puts an IPv6 extension header of 8 bytes of padding into an untagged frame.
func extended(f []byte, header byte) []byte {
	out := slices.Clone(f[:54])
	binary.BigEndian.PutUint16(out[18:], binary.BigEndian.Uint16(out[18:])+8)
	next := out[20]
	out[20] = header
	out = append(out, next, 0, 1, 4, 0, 0, 0, 0)
	return append(out, f[54:]...)
}

// TestNoBackend wants packets to a VIP without backends to be passed, and those to a backend without a next hop dropped.
func TestNoBackend(t *testing.T) {
	b := newBed(t, Options{})
	b.vip(0, vip4, protoTCP, nil)
	in := b.packet(client4, vip4, &layers.TCP{SYN: true}, nil)
	b.expectUnchanged(in, "pass lb-empty")
	backend := b.backend(1, 0, "10.0.0.11", func(backend *Backend) { backend.Hop.Port = 0 })
	b.vip(0, vip4, protoTCP, []Backend{backend})
	b.expectUnchanged(in, "drop lb-next-hop")
	backend = b.backend(1, 0, "10.0.0.11", func(backend *Backend) { backend.Hop.LinearOnly, backend.Hop.MTU = true, 9000 })
	b.expectSent(in, "fwd lb-flow", backend)
	big := b.packet(client4, vip4, &layers.TCP{ACK: true}, make([]byte, 8000))
	b.expectUnchanged(big, "drop lb-next-hop")
}

// oldKernel is a part that loads programs as for a kernel that redirects no frames of several buffers.
type oldKernel struct{}

func (oldKernel) Name() string                                     { return "old-kernel" }
func (oldKernel) Check() error                                     { return nil }
func (oldKernel) State(*datapath.Instance) (datapath.State, error) { return datapath.State{}, nil }
func (oldKernel) Shared(*datapath.Loading) []string                { return nil }
func (oldKernel) Fill(*datapath.Loading, *datapath.Instance) error { return nil }
func (oldKernel) Load(l *datapath.Loading) error {
	return l.Spec.Variables[bpfobj.PipelineVarOneBufferBelow].Set(uint32(netdev.FirstBuffer))
}

// TestSeveralBuffersOfOldKernels has programs as they are loaded for a kernel that redirects no frames of several buffers. These ask for
// the whole length only of frames that may have another buffer behind the first: those are dropped, whichever way leads to the backend.
func TestSeveralBuffersOfOldKernels(t *testing.T) {
	defer func(real func() bool) { oneBufferOnly = real }(oneBufferOnly)
	oneBufferOnly = func() bool { return true }
	b := newBedOf(t, Options{}, datapath.Options{Name: "lb", Interfaces: []string{"lb0"}, Parts: []datapath.Part{oldKernel{}}})
	for _, encap := range []Encap{IPIP, GUE} { // the former in straight-line code
		backend := b.backend(1, 0, "10.0.0.11", func(backend *Backend) {
			backend.Encap, backend.Hop.LinearOnly, backend.Hop.MTU = encap, true, 9000
		})
		if plain := backend.raw().Flags&backendPlain != 0; plain != (encap == IPIP) {
			t.Errorf("encapsulation %v: straight-line code sends to it: %v", encap, plain)
		}
		b.vip(0, vip4, protoTCP, []Backend{backend})
		client := fmt.Sprintf("203.0.113.7:%d", 1000+int(encap))
		b.expectSent(b.packet(client, vip4, &layers.TCP{SYN: true}, nil), "fwd lb-new", backend)
		for _, size := range []int{100, 1400, 3000} {
			b.expectSent(b.packet(client, vip4, &layers.TCP{ACK: true}, make([]byte, size)), "fwd lb-flow", backend)
		}
		b.expectUnchanged(b.packet(client, vip4, &layers.TCP{ACK: true}, make([]byte, 8000)), "drop lb-next-hop")
		// The packet ends with the first buffer, which has 3520 bytes in a test run.
		full := b.packet(client, vip4, &layers.TCP{ACK: true}, make([]byte, 3520-54))
		b.expectUnchanged(append(full, make([]byte, 4000)...), "drop lb-next-hop")
	}
}
