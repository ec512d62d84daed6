// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"culvert/internal/lab"
)

// TestLossesCountedOnce has every packet lost after it was forwarded, while one generation of programs takes over from
// another. Each is counted once as forwarded and once as lost.
func TestLossesCountedOnce(t *testing.T) {
	b := newBetween(t, lab.Options{Name: "los"})
	p := b.serve(t)
	// A veth does not take what is longer than its peer's MTU.
	check(t, b.lab.Do("b", func() error {
		link, err := netlink.LinkByName("to-rut")
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(link, streamSize/2)
	}))
	before := count(t, plane(t, b.lab, "rut"), "to-a")
	s := b.stream(t, "", 0)
	load := startLoad(t, b.from, s)
	load.wait(50)
	p.end(syscall.SIGKILL)
	node := nodeConfig(t, b.lab, "rut")
	for range 4 {
		culvert(t, b.lab, "rut", "attach", "-c", node, "to-a", "to-b")
	}
	load.stop()
	seen := settled(t, b.sink)

	moved := count(t, plane(t, b.lab, "rut"), "to-a").since(before)
	delete(moved, "pass other")
	want := tally{"fwd scion-br-transit": s.sent.Load(), "lost transmit": s.sent.Load()}
	if !maps.Equal(moved, want) || seen.Packets != 0 {
		t.Errorf("counters moved by %v, want %v; %d arrived", moved, want, seen.Packets)
	}
}
