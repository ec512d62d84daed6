// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"

	"culvert/internal/datapath"
	"culvert/internal/scion/scionpkt"
)

// insnDear are the packets that take each stage longest of all that a stranger can send, as far as is known. None is to
// take more than twice what the usual packet does that the stage has not seen before: culvert-cold, lb-new, route-fib4 and
// filter-protect.
func insnDear() []candidate {
	return []candidate{
		// It changes segments, so there are two hop fields to verify; no path is like another.
		{name: "dear-scion", device: func(Options) Device {
			return &culvert{traffic: scionTraffic{cold: true, crossing: true, shapes: true, size: frameSize}}
		}},
		// The first fragment of a new flow, which others are to follow, in a table that is full.
		{name: "dear-lb", device: func(Options) Device {
			d := lbCost{lbCulvert: lbCulvert{encap: datapath.BalanceGUE, v6: true, flows: insnFrames / 4, insertRate: lbUnlimited}}
			d.clients, d.fresh = insnFrames, true
			return &lbDear{d}
		}},
		// The kernel is asked for the way back as well.
		{name: "dear-route4", device: func(Options) Device {
			return &routeDear{insnRoute{router: &routeCulvert{noMirror: true}, size: frameSize}}
		}},
		// As many options to read as a SYN can have.
		{name: "dear-filter", device: func(Options) Device {
			return &filterDear{filterCost{rules: filterRules{Protect: true}}}
		}},
	}
}

// lbDear has the packets of new flows be first fragments.
type lbDear struct{ lbCost }

func (d *lbDear) Frames(p Path, common [][]byte) ([][]byte, error) {
	frames, err := d.lbCost.Frames(p, common)
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

// routeDear has Linux look where packets come from (rp_filter).
type routeDear struct{ insnRoute }

func (d *routeDear) Attach(ctx context.Context, p Path) error {
	err := p.In.Space.Do(func() error {
		const loose = "2"
		return os.WriteFile("/proc/sys/net/ipv4/conf/"+p.In.Name+"/rp_filter", []byte(loose), 0)
	})
	if err != nil {
		return fmt.Errorf("have the sources of packets looked at: %w", err)
	}
	return d.insnRoute.Attach(ctx, p)
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
