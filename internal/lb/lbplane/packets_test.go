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

func TestKnownFlow(t *testing.T) {
	b := newBed(t, Options{})
	one, two := b.backend(1, 0, "10.0.0.11"), b.backend(2, 0, "10.0.0.12")
	b.vip(0, vip4, protoTCP, []Backend{one, two})
	in := b.packet(client4, vip4, &layers.TCP{SYN: true}, nil)
	has := b.sent(in, "fwd lb-new", one, two)
	// The ring turns to the other one; the flow stays.
	other := one
	if has.ID == one.ID {
		other = two
	}
	b.ring(0, []Backend{other})
	b.sent(b.packet(client4, vip4, &layers.TCP{ACK: true}, []byte("GET /")), "fwd lb-flow", has)
	sum, err := b.plane.Traffic(has.ID.Number())
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
					all = append(all, b.backend(uint32(1+len(all)), 0, to.addr, func(m *Backend) {
						m.Encap, m.GUEPort, m.Hop.VLAN, m.Hop.MTU = encap, to.guePort, vlan, 9216
						if single {
							m.Source = netip.PrefixFrom(m.Source.Addr().Next(), m.Source.Addr().BitLen())
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

func TestEncapsulations(t *testing.T) {
	b := newBed(t, Options{})
	backends := encapsulations(b)
	for n, m := range backends {
		// One VIP each: the ring of one backend.
		for f, c := range []struct{ client, vip string }{{"203.0.113.7", "192.0.2.1"}, {"2001:db8:7::7", "2001:db8::1"}} {
			for p, proto := range []uint8{protoTCP, protoUDP} {
				number := uint32(n*4 + f*2 + p)
				to := netip.AddrPortFrom(netip.MustParseAddr(c.vip), uint16(1000+n)).String()
				b.vip(number, to, proto, []Backend{m})
				for k, size := range []int{0, 1, 5, 6, 100, 1400, 4000, 8900} {
					var l4 gopacket.SerializableLayer = &layers.UDP{}
					if proto == protoTCP {
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
					for i, frame := range [][]byte{in, in, tagged(in, 0x2005)} { // a tag with a priority
						want := "fwd lb-flow"
						if i == 0 {
							want = "fwd lb-new"
						}
						if b.sent(frame, want, m); t.Failed() {
							t.Fatalf("%+v, VIP %s, protocol %d, %d bytes", m, to, proto, size)
						}
					}
				}
			}
		}
	}
}

// tagged puts an 802.1Q tag on a frame.
func tagged(frame []byte, tci uint16) []byte {
	out := append(slices.Clone(frame[:12]), 0x81, 0)
	out = binary.BigEndian.AppendUint16(out, tci)
	return append(out, frame[12:]...)
}

// TestSpreads wants outer source, flow label and UDP port to be the same for all packets of a flow and to differ between flows.
func TestSpreads(t *testing.T) {
	for name, encap := range map[string]Encap{"ipip": IPIP, "gue": GUE} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, Options{})
			for n, addr := range []string{"10.0.0.11", "fd00::11"} {
				m := b.backend(uint32(1+n), 0, addr, func(m *Backend) { m.Encap = encap })
				to := fmt.Sprintf("192.0.2.1:%d", 80+n)
				b.vip(uint32(n), to, protoUDP, []Backend{m})
				sources, labels, ports := make(map[string]bool), make(map[string]bool), make(map[string]bool)
				const flows = 200
				for f := range flows {
					var before []byte
					for range 2 {
						in := b.packet(fmt.Sprintf("203.0.113.7:%d", 1000+f), to, &layers.UDP{}, make([]byte, 20))
						_, out, _ := b.run(in)
						if before != nil && !bytes.Equal(before, out) {
							t.Fatalf("two packets of one flow leave otherwise:\n%x\n%x", before, out)
						}
						if err := sentRight(in, out, m); err != nil {
							t.Fatal(err)
						}
						before = out
					}
					src, port := before[26:30], before[34:36]
					if n == 1 {
						src, port = before[22:38], before[54:56]
						labels[string(append([]byte{before[15] & 15}, before[16:18]...))] = true
					}
					sources[string(src)], ports[string(port)] = true, true
				}
				for what, seen := range map[string]map[string]bool{"source": sources, "label": labels, "port": ports} {
					if what == "label" && n == 0 || what == "port" && encap != GUE {
						continue
					}
					if len(seen) < flows*9/10 {
						t.Errorf("%d flows have %d outer %ss", flows, len(seen), what)
					}
				}
			}
		})
	}
}

func TestMostSpecificVIP(t *testing.T) {
	b := newBed(t, Options{})
	one, all, other := b.backend(1, 0, "10.0.0.11"), b.backend(2, 1, "10.0.0.12"), b.backend(3, 2, "10.0.0.13")
	b.vip(0, "192.0.2.1:80", protoTCP, []Backend{one})
	b.vip(1, "192.0.2.1:0", protoTCP, []Backend{all})
	b.vip(2, "192.0.2.1:443", protoTCP, []Backend{other})
	for to, want := range map[string]Backend{
		"192.0.2.1:80": one, "192.0.2.1:443": other, "192.0.2.1:81": all, "192.0.2.1:82": all,
	} {
		b.sent(b.packet(client4, to, &layers.TCP{SYN: true}, nil), "fwd lb-new", want)
	}
	b.leaves(b.packet(client4, "192.0.2.1:80", &layers.UDP{}, nil), "pass other")
	b.leaves(b.packet(client4, "192.0.2.2:80", &layers.TCP{SYN: true}, nil), "pass other")
	b.must(b.plane.DeleteVIP(VIPKey{Addr: netip.MustParseAddr("192.0.2.1"), Proto: protoTCP}))
	b.leaves(b.packet(client4, "192.0.2.1:82", &layers.TCP{ACK: true}, nil), "pass other")
	b.sent(b.packet(client4, "192.0.2.1:80", &layers.TCP{ACK: true}, nil), "fwd lb-flow", one)
}

// TestNotOurs wants packets that are not for the load balancer to be left alone.
func TestNotOurs(t *testing.T) {
	b := newBed(t, Options{})
	m := b.backend(1, 0, "10.0.0.11")
	b.vip(0, vip4, protoTCP, []Backend{m})
	b.vip(1, vip6, protoTCP, []Backend{m})
	for _, vip := range []string{vip4, vip6} {
		client := client4
		if vip == vip6 {
			client = client6
		}
		good := b.packet(client, vip, &layers.TCP{SYN: true}, []byte("payload"))
		b.sent(good, "fwd lb-new", m)
		b.leaves(b.changed(good, func(f []byte) { f[5] ^= 1 }), "pass other") // another MAC
		b.leaves(b.changed(good, func(f []byte) { f[14] = 0x70 }), "pass other")
		if vip == vip4 {
			b.leaves(b.changed(good, func(f []byte) { f[24] ^= 1 }), "pass other") // checksum
		}
		// Cut off anywhere: not ours, or to the slow path if there are ports.
		for n := 14; n < len(good); n++ {
			_, out, reason := b.run(good[:n])
			if reason != "pass other" || !bytes.Equal(out, good[:n]) {
				t.Fatalf("the first %d of %d bytes left as %q", n, len(good), reason)
			}
		}
		// The IP packet ends within the TCP header, the frame does not.
		for n := range 20 {
			f := b.changed(good, func(f []byte) { setIPLen(f, n) })
			b.leaves(f, "punt lb-headers")
		}
	}
	b.leaves(b.packet(client4, vip4, &layers.TCP{}, nil, func(l gopacket.SerializableLayer) {
		if ip, ok := l.(*layers.IPv4); ok {
			ip.Protocol = 132
		}
	}), "pass other")
}

// setIPLen gives an untagged frame's packet so many bytes behind the IP header.
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
	m := b.backend(1, 0, "10.0.0.11")
	b.vip(0, vip4, protoTCP, []Backend{m})
	b.vip(1, vip6, protoTCP, []Backend{m})
	options := func(l gopacket.SerializableLayer) {
		if ip, ok := l.(*layers.IPv4); ok {
			ip.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
		}
	}
	b.leaves(b.packet(client4, vip4, &layers.TCP{SYN: true}, nil, options), "punt lb-headers")
	b.leaves(b.packet(client4, "192.0.2.1:81", &layers.TCP{SYN: true}, nil, options), "pass other")
	b.leaves(b.packet(client4, vip4, &layers.UDP{}, nil, options), "pass other")
	for _, header := range []byte{0, 60} { // hop-by-hop and destination options
		b.leaves(extended(b.packet(client6, vip6, &layers.TCP{SYN: true}, nil), header), "punt lb-headers")
		b.leaves(extended(b.packet(client6, "[2001:db8::1]:81", &layers.TCP{SYN: true}, nil), header), "pass other")
		b.leaves(extended(b.packet(client6, vip6, &layers.UDP{}, nil), header), "pass other")
	}
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
	b.leaves(in, "pass lb-empty")
	m := b.backend(1, 0, "10.0.0.11", func(m *Backend) { m.Hop.Port = 0 })
	b.vip(0, vip4, protoTCP, []Backend{m})
	b.leaves(in, "drop lb-next-hop")
	m = b.backend(1, 0, "10.0.0.11", func(m *Backend) { m.Hop.LinearOnly, m.Hop.MTU = true, 9000 })
	b.sent(in, "fwd lb-flow", m)
	big := b.packet(client4, vip4, &layers.TCP{ACK: true}, make([]byte, 8000))
	b.leaves(big, "drop lb-next-hop")
}
