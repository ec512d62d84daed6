// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"encoding/binary"
	"slices"

	"culvert/internal/bench/peer"
	"culvert/internal/lb/lbplane"
	"culvert/internal/scion/scionpkt"
)

// Dear is the packet that takes the balancer longest, as far as is known: the first fragment of a new flow, which others
// are to follow, in a table that is full. So many flows take turns.
func Costliest(flows int) peer.Candidate {
	return peer.Candidate{Name: "dear-lb", Device: func(peer.DeviceOptions) peer.Device {
		d := costDevice{culvert: culvert{encap: lbplane.GUE, v6: true, flows: flows / 4, insertRate: unlimited}}
		d.clients, d.fresh = flows, true
		return &costliest{d}
	}}
}

// dearest has the packets of new flows be first fragments.
type costliest struct{ costDevice }

func (d *costliest) Frames(p peer.Path, common [][]byte) ([][]byte, error) {
	frames, err := d.costDevice.Frames(p, common)
	for i, f := range frames {
		const next, payload, behind = 6, 4, scionpkt.EthernetLen + scionpkt.IPv6Len
		ip := f[scionpkt.EthernetLen:]
		head := binary.BigEndian.AppendUint32([]byte{ip[next], 0, 0, 1}, uint32(i))
		const fragment = 44
		ip[next] = fragment
		binary.BigEndian.PutUint16(ip[payload:], binary.BigEndian.Uint16(ip[payload:])+uint16(len(head)))
		frames[i] = slices.Insert(f, behind, head...)
	}
	return frames, err
}
