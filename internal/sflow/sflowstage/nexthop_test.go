// SPDX-License-Identifier: Apache-2.0

package sflowstage

import (
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	decoder "github.com/netsampler/goflow2/v2/decoders/sflow"

	"culvert/internal/testbed"
)

// packet6 returns a UDP packet of IPv6 for the router.
func (b *bed) packet6(dst string) []byte {
	b.t.Helper()
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: b.west.HardwareAddr, EthernetType: layers.EthernetTypeIPv6}
	ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolUDP, SrcIP: net.ParseIP("fd01::2"), DstIP: net.ParseIP(dst)}
	udp := &layers.UDP{SrcPort: 1000, DstPort: 2000}
	b.must(udp.SetNetworkLayerForChecksum(ip))
	buf := gopacket.NewSerializeBuffer()
	b.must(gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, udp))
	return buf.Bytes()
}

// TestNextHops has packets of both families forwarded to a network without and with a tag. All neighbors have the same MAC address, as
// those of one router have.
func TestNextHops(t *testing.T) {
	b := newBed(t)
	// It stands for a VLAN device, which not every kernel has. The programs see nothing of it but its index.
	b.vlan = testbed.AddVeth(t, "vlan20", "vlan20p")
	for _, dev := range []string{"west", "east", "vlan20"} {
		testbed.Sysctl(t, "ipv6/conf/"+dev+"/disable_ipv6", "0")
	}
	testbed.Sysctl(t, "ipv6/conf/all/forwarding", "1")
	for _, cmd := range []string{
		"addr add 10.3.0.1/24 dev vlan20", "route add 203.0.113.0/25 via 10.3.0.9",
		"addr add fd01::1/64 dev west nodad", "addr add fd02::1/64 dev east nodad", "addr add fd03::1/64 dev vlan20 nodad",
		"route add 2001:db8:2::/48 via fd02::9", "route add 2001:db8:3::/56 via fd03::9",
		"neigh replace 10.3.0.9 lladdr 02:00:00:00:00:09 dev vlan20 nud permanent",
		"neigh replace fd02::9 lladdr 02:00:00:00:00:09 dev east nud permanent",
		"neigh replace fd03::9 lladdr 02:00:00:00:00:09 dev vlan20 nud permanent",
		"neigh replace fd02::7 lladdr 02:00:00:00:00:07 dev east nud permanent", // a host on the network
	} {
		testbed.IP(t, cmd)
	}
	b.serve("rate = 1\npolling = \"0s\"\n")
	none, out20 := decoder.ExtendedSwitch{}, decoder.ExtendedSwitch{DstVlan: 20}
	frames := []struct {
		name        string
		frame       []byte
		hop         string
		source, way uint32                 // lengths of the prefixes
		tags        decoder.ExtendedSwitch // the zero value if there are none
	}{
		{"IPv4", b.packet("192.0.2.5", 64, 2000, 20), "10.2.0.9", 24, 24, none},
		{"IPv6", b.packet6("2001:db8:2::5"), "fd02::9", 64, 48, none},
		{"IPv6, a neighbor", b.packet6("fd02::7"), "fd02::7", 64, 64, none},
		{"IPv4, tagged", b.packet("203.0.113.5", 64, 2000, 20), "10.3.0.9", 24, 25, out20},
		{"IPv6, tagged", b.packet6("2001:db8:3::5"), "fd03::9", 64, 56, out20},
	}
	for _, f := range frames {
		b.send(f.frame)
	}
	got := b.receive("samples", func(r *received) bool { return len(r.flows) >= len(frames) })
	for n, f := range frames {
		s := got.flows[n]
		if int(s.Output) != b.east.Index {
			t.Errorf("%s: %+v", f.name, s)
			continue
		}
		wantHeader(t, f.name, s.Records, f.frame)
		r, _ := record[decoder.ExtendedRouter](s.Records)
		if hop, _ := netip.AddrFromSlice(r.NextHop); hop != netip.MustParseAddr(f.hop) || r.SrcMaskLen != f.source || r.DstMaskLen != f.way {
			t.Errorf("%s: next hop %s, prefixes of %d and %d bits, want %s, %d and %d", f.name, hop, r.SrcMaskLen, r.DstMaskLen, f.hop, f.source, f.way)
		}
		if tags, ok := record[decoder.ExtendedSwitch](s.Records); tags != f.tags || ok != (f.tags != none) {
			t.Errorf("%s: %+v, want %+v", f.name, tags, f.tags)
		}
	}
}
