// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/binary"

	"culvert/internal/scion/scionpkt"
)

// FilterDear is the packet that takes the filter longest, as far as is known: it has as many options to read as a SYN can
// have.
func FilterDear() candidate {
	return candidate{name: "dear-filter", device: func(Terms) Device {
		return &filterDear{filterCost{rules: filterRules{Protect: true}}}
	}}
}

// filterDear has SYNs with as many options as there is room for.
type filterDear struct{ filterCost }

func (*filterDear) Frames(p Path, _ [][]byte) ([][]byte, error) {
	frames := floodSYN(p)
	for i, f := range frames {
		const most, end = 60, scionpkt.EthernetLen + scionpkt.IPv4Len
		f = append(f[:end+20:end+20], make([]byte, most-20)...)
		ip, tcp := f[scionpkt.EthernetLen:], f[end:]
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], ^onesSum(ip[:scionpkt.IPv4Len]))
		// A time stamp, which makes the answer longer, and nothing behind it.
		const stamp, stampLen, nothing = 8, 10, 1
		tcp[12] = most / 4 << 4
		tcp[20], tcp[21] = stamp, stampLen
		for n := 20 + stampLen; n < most; n++ {
			tcp[n] = nothing
		}
		tcp[16], tcp[17] = 0, 0
		pseudo := append(append([]byte{}, ip[12:20]...), 0, protoTCP, 0, most)
		binary.BigEndian.PutUint16(tcp[16:], ^onesSum(append(pseudo, tcp...)))
		frames[i] = f
	}
	return frames, nil
}
