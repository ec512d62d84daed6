// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"culvert/internal/scion/scionpkt"
)

// filterFrame is the length of frames in scenario filter, bytes without the frame check sequence: the shortest that
// Ethernet has.
const filterFrame = 60

// Addresses of scenario filter, which are for benchmarks (RFC 2544, appendix C). The host under test and its innocent
// client share a subnet; the flood comes from one address elsewhere, the only thing that xdp-filter can tell it by.
var (
	filterNet    = netip.MustParsePrefix("198.19.0.0/24")
	filterHost   = filterNet.Addr().Next()
	filterClient = filterHost.Next()
	floodSource  = netip.MustParseAddr("198.18.0.1")
)

// filterService is a service that is protected from floods of SYNs.
var filterService = netip.AddrPortFrom(filterHost, 80)

// floodFrames is how many different packets of a flood take turns.
const floodFrames = 256

// Fields of an ICMP echo request (RFC 792).
const (
	protoICMP  = 1
	icmpHeader = 8
	icmpEcho   = 8
)

// echoFrame is an ICMP echo request to the host under test, with right checksums.
func echoFrame(src netip.Addr, to End, from End, number int) []byte {
	f := make([]byte, filterFrame)
	copy(f[0:6], to.MAC)
	copy(f[6:12], from.MAC)
	binary.BigEndian.PutUint16(f[12:], scionpkt.EtherTypeIPv4)
	ip := f[scionpkt.EthernetLen:]
	ip[0], ip[8], ip[9] = 0x45, 64, protoICMP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	s, d := src.As4(), filterHost.As4()
	copy(ip[12:16], s[:])
	copy(ip[16:20], d[:])
	binary.BigEndian.PutUint16(ip[10:], ^onesSum(ip[:scionpkt.IPv4Len]))
	icmp := ip[scionpkt.IPv4Len:]
	icmp[0] = icmpEcho
	binary.BigEndian.PutUint16(icmp[4:], uint16(number))
	binary.BigEndian.PutUint16(icmp[6:], 1)
	binary.BigEndian.PutUint16(icmp[2:], ^onesSum(icmp))
	return f
}

// synFrame is a SYN to the protected service, with right checksums.
func synFrame(to, from End, port int) []byte {
	f := make([]byte, filterFrame)
	copy(f[0:6], to.MAC)
	copy(f[6:12], from.MAC)
	binary.BigEndian.PutUint16(f[12:], scionpkt.EtherTypeIPv4)
	ip := f[scionpkt.EthernetLen:][:scionpkt.IPv4Len+synLen]
	ip[0], ip[8], ip[9] = 0x45, 64, protoTCP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	s, d := floodSource.As4(), filterService.Addr().As4()
	copy(ip[12:16], s[:])
	copy(ip[16:20], d[:])
	binary.BigEndian.PutUint16(ip[10:], ^onesSum(ip[:scionpkt.IPv4Len]))
	tcp := ip[scionpkt.IPv4Len:]
	binary.BigEndian.PutUint16(tcp[0:], uint16(port))
	binary.BigEndian.PutUint16(tcp[2:], filterService.Port())
	binary.BigEndian.PutUint32(tcp[4:], uint32(port)*2654435761)
	tcp[12], tcp[13] = synLen/4<<4, synFlag
	binary.BigEndian.PutUint16(tcp[14:], synWindow)
	tcp[20], tcp[21] = mssOption, mssLen
	binary.BigEndian.PutUint16(tcp[22:], synSegment)
	pseudo := append([]byte{s[0], s[1], s[2], s[3], d[0], d[1], d[2], d[3], 0, protoTCP, 0, synLen}, tcp...)
	binary.BigEndian.PutUint16(tcp[16:], ^onesSum(pseudo))
	return f
}

// floodSYN is a flood of SYNs to the protected service, each from another port.
func floodSYN(p Path) [][]byte {
	const firstPort = 1024
	frames := make([][]byte, floodFrames)
	for i := range frames {
		frames[i] = synFrame(p.In, p.Source, firstPort+i)
	}
	return frames
}

// floodICMP is the flood that rules drop.
func floodICMP(p Path) [][]byte {
	frames := make([][]byte, floodFrames)
	for i := range frames {
		frames[i] = echoFrame(floodSource, p.In, p.Source, i)
	}
	return frames
}

// floodOf is a flood from n random addresses of a set.
func floodOf(p Path, set []netip.Prefix, n int) [][]byte {
	r := rand.New(rand.NewPCG(routeSeed, uint64(n)))
	frames := make([][]byte, n)
	for i := range frames {
		frames[i] = echoFrame(addressIn(r, set[r.IntN(len(set))]), p.In, p.Source, i)
	}
	return frames
}

// innocentUDP is what no rule drops: packets to a socket of the host.
func innocentUDP(p Path) ([][]byte, error) {
	u := UDPTraffic{
		Sizes: []int{filterFrame}, Flows: floodFrames, Src: floodSource, Dst: filterHost, DstMAC: p.In.MAC, SrcMAC: p.Source.MAC,
	}
	if err := u.check(); err != nil {
		return nil, err
	}
	return u.frames(p.Source)
}
