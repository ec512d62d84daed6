// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"encoding/binary"
	"slices"

	"culvert/internal/bench/peer"
	"culvert/internal/lb/lbplane"
	"culvert/internal/scion/scionpkt"
)

// Costliest is a row with the costliest packet for the load balancer that is known: the first fragment of a new flow, with
// further fragments to come, when the flow table is full. flows is the number of flows that take turns.
func Costliest(flows int) peer.Candidate {
	return peer.Candidate{Name: "dear-lb", Device: func(peer.DeviceOptions) peer.Device {
		d := costDevice{culvert: culvert{encap: lbplane.GUE, v6: true, flows: flows / 4, insertRate: unlimited}}
		d.clients, d.fresh = flows, true
		return &costliest{d}
	}}
}

// costliest is a load balancer that gets first fragments of new flows over IPv6.
type costliest struct{ costDevice }

func (d *costliest) Frames(p peer.Path, common [][]byte) ([][]byte, error) {
	frames, err := d.costDevice.Frames(p, common)
	for i, f := range frames {
		// Offsets of IPv6 header fields, and the protocol number of the fragment header (RFC 8200, 4.5).
		const payloadLength, nextHeader, fragment = 4, 6, 44
		ip := f[scionpkt.EthernetLen:]
		header := binary.BigEndian.AppendUint32([]byte{ip[nextHeader], 0, 0, 1}, uint32(i))
		ip[nextHeader] = fragment
		binary.BigEndian.PutUint16(ip[payloadLength:], binary.BigEndian.Uint16(ip[payloadLength:])+uint16(len(header)))
		frames[i] = slices.Insert(f, scionpkt.EthernetLen+scionpkt.IPv6Len, header...)
	}
	return frames, err
}
