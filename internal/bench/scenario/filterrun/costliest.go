// SPDX-License-Identifier: Apache-2.0

package filterrun

import (
	"encoding/binary"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/scion/scionpkt"
)

// Dear is the packet that takes the filter longest, as far as is known: it has as many options to read as a SYN can
// have.
func Costliest() peer.Candidate {
	return peer.Candidate{Name: "dear-filter", Device: func(peer.DeviceOptions) peer.Device {
		return &costliest{costDevice{rules: ruleSet{Protect: true}}}
	}}
}

// dearest has SYNs with as many options as there is room for.
type costliest struct{ costDevice }

func (*costliest) Frames(p peer.Path, _ [][]byte) ([][]byte, error) {
	frames := floodSYN(p)
	for i, f := range frames {
		const most, end = 60, scionpkt.EthernetLen + scionpkt.IPv4Len
		f = append(f[:end+20:end+20], make([]byte, most-20)...)
		ip, tcp := f[scionpkt.EthernetLen:], f[end:]
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], ^load.OnesSum(ip[:scionpkt.IPv4Len]))
		// A time stamp, which makes the answer longer, and nothing behind it.
		const stamp, stampLen, nothing = 8, 10, 1
		tcp[12] = most / 4 << 4
		tcp[20], tcp[21] = stamp, stampLen
		for n := 20 + stampLen; n < most; n++ {
			tcp[n] = nothing
		}
		tcp[16], tcp[17] = 0, 0
		pseudo := append(append([]byte{}, ip[12:20]...), 0, load.ProtoTCP, 0, most)
		binary.BigEndian.PutUint16(tcp[16:], ^load.OnesSum(append(pseudo, tcp...)))
		frames[i] = f
	}
	return frames, nil
}
