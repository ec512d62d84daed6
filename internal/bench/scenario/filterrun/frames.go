// SPDX-License-Identifier: Apache-2.0

package filterrun

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/scion/scionpkt"
)

// frameLen is the length of frames in scenario filter, in bytes without the frame check sequence. It is the shortest of
// Ethernet.
const frameLen = 60

// Addresses of scenario filter, which are for benchmarks (RFC 2544, appendix C). The host under test and its innocent client
// share a subnet. The flood comes from one address outside of it, because xdp-filter can only match addresses and ports.
var (
	subnet      = netip.MustParsePrefix("198.19.0.0/24")
	host        = subnet.Addr().Next()
	client      = host.Next()
	floodSource = netip.MustParseAddr("198.18.0.1")
)

// service is the service that culvert protects from SYN floods.
var service = netip.AddrPortFrom(host, 80)

// floodFrames is the number of different packets of a flood, which take turns.
const floodFrames = 256

// Fields of an ICMP echo request (RFC 792).
const (
	protoICMP  = 1
	icmpHeader = 8
	icmpEcho   = 8
)

// echoFrame makes an ICMP echo request to the host under test, with valid checksums.
func echoFrame(src netip.Addr, to load.End, from load.End, number int) []byte {
	f := make([]byte, frameLen)
	copy(f[0:6], to.MAC)
	copy(f[6:12], from.MAC)
	binary.BigEndian.PutUint16(f[12:], scionpkt.EtherTypeIPv4)
	ip := f[scionpkt.EthernetLen:]
	ip[0], ip[8], ip[9] = 0x45, 64, protoICMP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	s, d := src.As4(), host.As4()
	copy(ip[12:16], s[:])
	copy(ip[16:20], d[:])
	binary.BigEndian.PutUint16(ip[10:], ^load.OnesSum(ip[:scionpkt.IPv4Len]))
	icmp := ip[scionpkt.IPv4Len:]
	icmp[0] = icmpEcho
	binary.BigEndian.PutUint16(icmp[4:], uint16(number))
	binary.BigEndian.PutUint16(icmp[6:], 1)
	binary.BigEndian.PutUint16(icmp[2:], ^load.OnesSum(icmp))
	return f
}

// synFrame makes a SYN to the protected service, with valid checksums.
func synFrame(to, from load.End, port int) []byte {
	f := make([]byte, frameLen)
	copy(f[0:6], to.MAC)
	copy(f[6:12], from.MAC)
	binary.BigEndian.PutUint16(f[12:], scionpkt.EtherTypeIPv4)
	ip := f[scionpkt.EthernetLen:][:scionpkt.IPv4Len+load.SYNLen]
	ip[0], ip[8], ip[9] = 0x45, 64, load.ProtoTCP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	s, d := floodSource.As4(), service.Addr().As4()
	copy(ip[12:16], s[:])
	copy(ip[16:20], d[:])
	binary.BigEndian.PutUint16(ip[10:], ^load.OnesSum(ip[:scionpkt.IPv4Len]))
	tcp := ip[scionpkt.IPv4Len:]
	binary.BigEndian.PutUint16(tcp[0:], uint16(port))
	binary.BigEndian.PutUint16(tcp[2:], service.Port())
	binary.BigEndian.PutUint32(tcp[4:], uint32(port)*2654435761)
	tcp[12], tcp[13] = load.SYNLen/4<<4, load.SYNFlag
	binary.BigEndian.PutUint16(tcp[14:], load.SYNWindow)
	tcp[20], tcp[21] = load.MSSOption, load.MSSLen
	binary.BigEndian.PutUint16(tcp[22:], load.SYNSegment)
	pseudo := append([]byte{s[0], s[1], s[2], s[3], d[0], d[1], d[2], d[3], 0, load.ProtoTCP, 0, load.SYNLen}, tcp...)
	binary.BigEndian.PutUint16(tcp[16:], ^load.OnesSum(pseudo))
	return f
}

// floodSYN makes a flood of SYNs to the protected service, each from another port.
func floodSYN(p peer.Path) [][]byte {
	const firstPort = 1024
	frames := make([][]byte, floodFrames)
	for i := range frames {
		frames[i] = synFrame(p.In, p.Source, firstPort+i)
	}
	return frames
}

// floodICMP makes the ICMP flood that rules drop.
func floodICMP(p peer.Path) [][]byte {
	frames := make([][]byte, floodFrames)
	for i := range frames {
		frames[i] = echoFrame(floodSource, p.In, p.Source, i)
	}
	return frames
}

// floodOf makes an ICMP flood from n random addresses of a set.
func floodOf(p peer.Path, set []netip.Prefix, n int) [][]byte {
	r := rand.New(rand.NewPCG(load.Seed, uint64(n)))
	frames := make([][]byte, n)
	for i := range frames {
		frames[i] = echoFrame(load.AddressIn(r, set[r.IntN(len(set))]), p.In, p.Source, i)
	}
	return frames
}

// innocentUDP makes packets that no rule drops, to a socket of the host.
func innocentUDP(p peer.Path) ([][]byte, error) { return udpFrom(p, floodSource, load.DiscardPort) }

// idleUDP makes packets that idle rule n matches.
func idleUDP(p peer.Path, n int) ([][]byte, error) { return udpFrom(p, idleSource(n), idlePort(n)) }

func udpFrom(p peer.Path, src netip.Addr, port int) ([][]byte, error) {
	u := load.UDPTraffic{
		Sizes: []int{frameLen}, Flows: floodFrames, Src: src, Dst: host, Port: uint16(port), DstMAC: p.In.MAC, SrcMAC: p.Source.MAC,
	}
	if err := u.Check(); err != nil {
		return nil, err
	}
	return u.Frames(p.Source)
}
