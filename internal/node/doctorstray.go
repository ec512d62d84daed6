// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"time"

	"culvert/internal/doctor"
	"culvert/internal/stats"
)

// strays finds the interfaces of a router where datagrams of links are being dropped that belong to another one. Wait is called
// between two looks if there have been any at all.
func strays(router string, plane stats.PortSource, wait func()) (found []doctor.Stray) {
	first := strayPackets(plane)
	if !slices.ContainsFunc(first, func(s doctor.Stray) bool { return s.Packets > 0 }) {
		return nil
	}
	wait()
	for _, now := range strayPackets(plane) {
		for _, then := range first {
			if now.Interface == then.Interface && now.Packets > then.Packets {
				found = append(found, doctor.Stray{Interface: now.Interface, Router: router, Packets: now.Packets - then.Packets})
			}
		}
	}
	return found
}

func strayPackets(plane stats.PortSource) (all []doctor.Stray) {
	ports, err := plane.Ports()
	if err != nil {
		return nil // the privileges that it takes are a check of their own
	}
	for _, p := range ports {
		s := doctor.Stray{Interface: p.Interface}
		for _, r := range p.Reasons {
			if r.Verdict == "drop" && r.Name == "scion-interface" {
				s.Packets += r.Packets
			}
		}
		all = append(all, s)
	}
	return all
}

func aSecond() { time.Sleep(time.Second) }
