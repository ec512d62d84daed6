// SPDX-License-Identifier: Apache-2.0

package filterrun

import (
	"encoding/binary"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/scion/scionpkt"
)

// Costliest is a row with the costliest packet for the filter that is known: a SYN with as many options to read as fit.
func Costliest() peer.Candidate {
	return peer.Candidate{Name: "dear-filter", Device: func(peer.DeviceOptions) peer.Device {
		return &costliest{costDevice{rules: ruleSet{Protect: true}}}
	}}
}

// costliest is a filter that gets SYNs with as many TCP options as fit.
type costliest struct{ costDevice }

func (*costliest) Frames(p peer.Path, _ [][]byte) ([][]byte, error) {
	frames := floodSYN(p)
	for i, f := range frames {
		const maxTCPLen, tcpAt = 60, scionpkt.EthernetLen + scionpkt.IPv4Len
		f = append(f[:tcpAt+20:tcpAt+20], make([]byte, maxTCPLen-20)...)
		ip, tcp := f[scionpkt.EthernetLen:], f[tcpAt:]
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], ^load.OnesSum(ip[:scionpkt.IPv4Len]))
		// The first option is a timestamp, which makes the answer longer. All others are no-operations.
		const timestamp, timestampLen, nop = 8, 10, 1
		tcp[12] = maxTCPLen / 4 << 4
		tcp[20], tcp[21] = timestamp, timestampLen
		for n := 20 + timestampLen; n < maxTCPLen; n++ {
			tcp[n] = nop
		}
		tcp[16], tcp[17] = 0, 0
		pseudo := append(append([]byte{}, ip[12:20]...), 0, load.ProtoTCP, 0, maxTCPLen)
		binary.BigEndian.PutUint16(tcp[16:], ^load.OnesSum(append(pseudo, tcp...)))
		frames[i] = f
	}
	return frames, nil
}
