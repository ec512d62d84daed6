// SPDX-License-Identifier: Apache-2.0

package load

import (
	"net"
	"net/netip"

	"culvert/internal/scion/scionpkt"
)

// UDPTraffic describes UDP packets. The zero value of each field but Sizes stands for its default.
type UDPTraffic struct {
	// Sizes are the lengths of the frames in bytes, without the frame check sequence. They take turns in each flow.
	Sizes []int
	// Flows is the number of flows, 1 by default. They differ in the source port, and beyond 64512 flows in the source
	// address too.
	Flows int
	// Src and Dst are addresses of one family. The defaults are 198.18.0.1 and 198.19.0.1, which are for benchmarks
	// (RFC 2544, appendix C). IPv6 has no defaults.
	Src, Dst netip.Addr
	// Port is the destination port, DiscardPort by default.
	Port uint16
	// DstMAC and SrcMAC are the Ethernet addresses. The defaults are 02:00:00:00:00:02 and the device's own address.
	DstMAC, SrcMAC net.HardwareAddr
}

// DiscardPort is the port of the discard service (RFC 863).
const DiscardPort = 9

// maxTemplateBytes bounds the memory of the frames, in bytes. They take as much kernel memory again.
const maxTemplateBytes = 1 << 30

// Check fills in defaults, and returns an OptionError for packets that cannot be sent.
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
	longest := 0
	for _, size := range u.Sizes {
		if size < u.headers() || size > MinFrame+0xffff {
			return optionErrorf("frames of %d bytes: these UDP packets take %d to %d", size, u.headers(), MinFrame+0xffff)
		}
		longest = max(longest, size)
	}
	if sum := u.Flows * len(u.Sizes) * longest; sum > maxTemplateBytes {
		return optionErrorf("%d flows of %d frames up to %d bytes take %d MiB: there is room for %d; make them fewer",
			u.Flows, len(u.Sizes), longest, sum>>20, maxTemplateBytes>>20)
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

// Frames makes one frame for each flow and size. Frame i belongs to flow i mod Flows.
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
		// Sizes take turns from one frame to the next, and within each flow.
		size := u.Sizes[(lap+flow)%len(u.Sizes)]
		f, err := o.Frame(make([]byte, size-u.headers()))
		if err != nil {
			return nil, err
		}
		frames[i] = f
	}
	return frames, nil
}
