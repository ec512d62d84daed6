// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"testing"

	"culvert/internal/stats"
)

// Return values of an XDP program (enum xdp_action of linux/bpf.h).
const (
	XDPAborted = iota
	XDPDrop
	XDPPass
	XDPTX
	XDPRedirect
)

// Plane is a data plane that runs its program on single packets.
type Plane interface {
	TestRun(frame []byte, iface string) (action uint32, out []byte, err error)
	Ports() ([]stats.Port, error)
}

// Feed runs the program count times on a frame that comes in by interface iface.
func Feed(t testing.TB, plane Plane, frame []byte, iface string, count int) {
	t.Helper()
	for range count {
		if _, _, err := plane.TestRun(frame, iface); err != nil {
			t.Fatal(err)
		}
	}
}

// Counted returns an interface's counters, its packets by "verdict reason", and the total of its packets.
func Counted(t testing.TB, plane Plane, iface string) (port stats.Port, byReason map[string]uint64, total uint64) {
	t.Helper()
	ports, err := plane.Ports()
	if err != nil {
		t.Fatal(err)
	}
	byReason = make(map[string]uint64)
	for _, p := range ports {
		if p.Interface != iface {
			continue
		}
		port = p
		for _, r := range p.Reasons {
			byReason[r.Verdict+" "+r.Name] += r.Packets
		}
		total, _ = p.Total()
	}
	if port.Interface == "" {
		t.Fatalf("no counters of %s in %+v", iface, ports)
	}
	return port, byReason, total
}
