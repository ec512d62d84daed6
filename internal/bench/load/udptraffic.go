// SPDX-License-Identifier: Apache-2.0

package load

import (
	"net"
	"net/netip"

	"culvert/internal/scion/scionpkt"
)

// UDPTraffic says what UDP packets to make. The zero value of a field but Sizes is its default.
type UDPTraffic struct {
	// Sizes are the lengths of the frames in bytes, which each flow takes by turns; without the frame check sequence.
	Sizes []int
	// Flows is how many flows there are, 1 by default. They differ in the source port, and in the source address
	// when ports do not suffice.
	Flows int
	// Src and Dst are the addresses, of one family: by default 198.18.0.1 and 198.19.0.1, which are for benchmarks
	// (RFC 2544, appendix C).
	Src, Dst netip.Addr
	// Port is the destination port, by default 9, where packets are to be discarded (RFC 863).
	Port uint16
	// DstMAC and SrcMAC are the Ethernet addresses, by default the made-up 02:00:00:00:00:02 and the device's own.
	DstMAC, SrcMAC net.HardwareAddr
}

// DiscardPort is the default destination port.
const DiscardPort = 9

// mostTemplates bounds the memory that frames take, in bytes: it is kernel memory too.
const mostTemplates = 1 << 30

// Check fills in defaults, and refuses what cannot be sent.
func (u *UDPTraffic) Check() error {
	if u.Flows == 0 {
		u.Flows = 1
	}
	if u.Port == 0 {
		u.Port = DiscardPort
	}
	if !u.Src.Is6() && !u.Dst.Is6() {
		if !u.Src.IsValid() {
			u.Src = netip.MustParseAddr("198.18.0.1")
		}
		if !u.Dst.IsValid() {
			u.Dst = netip.MustParseAddr("198.19.0.1")
		}
	}
	if !u.Src.IsValid() || !u.Dst.IsValid() {
		return optionErrorf("give source and destination both: there is no default for IPv6")
	}
	if u.Src.Is4() != u.Dst.Is4() {
		return optionErrorf("%s and %s are not of one family", u.Src, u.Dst)
	}
	if u.Flows < 1 || u.Flows > maxFlows {
		return optionErrorf("%d flows: there can be 1 to %d", u.Flows, maxFlows)
	}
	if len(u.Sizes) == 0 {
		return optionErrorf("no frame size: give one")
	}
	most := 0
	for _, size := range u.Sizes {
		if size < u.headers() || size > MinFrame+0xffff {
			return optionErrorf("frames of %d bytes: these UDP packets take %d to %d", size, u.headers(), MinFrame+0xffff)
		}
		most = max(most, size)
	}
	if sum := u.Flows * len(u.Sizes) * most; sum > mostTemplates {
		return optionErrorf("%d flows of %d frames up to %d bytes take %d MiB: there is room for %d; make them fewer",
			u.Flows, len(u.Sizes), most, sum>>20, mostTemplates>>20)
	}
	return nil
}

// headers is the length of all headers in bytes.
func (u *UDPTraffic) headers() int {
	if u.Dst.Is6() {
		return scionpkt.EthernetLen + scionpkt.IPv6Len + scionpkt.UDPLen
	}
	return MinUDPFrame
}

// Frames makes one frame for each flow and size. Frame i is of flow i mod Flows.
func (u *UDPTraffic) Frames(from End) ([][]byte, error) {
	const firstPort, ports = 1024, 1<<16 - 1024
	o := scionpkt.Outer{DstMAC: [6]byte{2, 0, 0, 0, 0, 2}, Dst: netip.AddrPortFrom(u.Dst, u.Port)}
	copy(o.SrcMAC[:], from.MAC)
	copy(o.SrcMAC[:], u.SrcMAC)
	copy(o.DstMAC[:], u.DstMAC)
	sources := make([]netip.Addr, (u.Flows+ports-1)/ports)
	for i, addr := 0, u.Src; i < len(sources); i, addr = i+1, addr.Next() {
		sources[i] = addr
	}
	frames := make([][]byte, u.Flows*len(u.Sizes))
	for i := range frames {
		flow, lap := i%u.Flows, i/u.Flows
		o.Src = netip.AddrPortFrom(sources[flow/ports], uint16(firstPort+flow%ports))
		// Sizes take turns from frame to frame and within a flow.
		size := u.Sizes[(lap+flow)%len(u.Sizes)]
		f, err := o.Frame(make([]byte, size-u.headers()))
		if err != nil {
			return nil, err
		}
		frames[i] = f
	}
	return frames, nil
}
