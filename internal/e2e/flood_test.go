// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"culvert/internal/bench/load"
	"culvert/internal/lab"
	"culvert/internal/scion/scionpkt"
)

// nodeConfig writes culvert's own file for the router of an AS and returns its path.
func nodeConfig(t *testing.T, l *lab.Lab, ns string) string {
	t.Helper()
	as, err := l.AS(ns)
	check(t, err)
	path := filepath.Join(as.ConfigDir, "culvert.toml")
	check(t, os.WriteFile(path, []byte("[scion]\nconfig = '"+as.RouterConfig+"'\n"), 0o644))
	return path
}

// floodPackets is a multiple neither of the number of flows nor of a batch of the kernel.
const floodPackets = 200_003

// inside is the interface ID of the AS's own network, as in SCION's paths.
const inside = 0

// unfoundHost is how packets to a host are counted for which the kernel has no neighbor. The kernel's neighbor table is one for all network
// namespaces. While it grows, which another test may cause, entries are for a moment in neither the old nor the new one for readers
// (neigh_hash_grow), even permanent ones. That lasts for microseconds, so mostUnfound bounds it.
const (
	unfoundHost = "punt scion-host-unknown"
	mostUnfound = floodPackets / 10_000
)

// TestFlood sends packets of each direction as fast as the kernel can, through a router that is attached and has no process.
// Every packet must be accounted for.
func TestFlood(t *testing.T) {
	for _, o := range []lab.Options{{Name: "f4"}, {Name: "f6", IPv6: true, MTU: 9000}} {
		o.StaticNeighbors, o.Forward = true, true
		family := map[bool]string{false: "IPv4", true: "IPv6"}[o.IPv6]
		t.Run(family, func(t *testing.T) {
			l := up(t, "veth", o)
			culvert(t, l, "rut", "attach", "-c", nodeConfig(t, l, "rut"), "to-a", "to-b")
			f := &flood{
				lab: l, a: end(t, l, "a", "to-rut"), b: end(t, l, "b", "to-rut"),
				rutA: end(t, l, "rut", "to-a"), rutB: end(t, l, "rut", "to-b"),
			}
			f.toB, f.toA = "to-a", "to-b"
			for _, d := range []direction{
				{"external to external", f.a, 1, 2, "fwd scion-br-transit"},
				{"external to sibling", f.a, 1, 3, "fwd scion-in-transit"},
				{"external to host", f.a, 1, inside, "fwd scion-in"},
				{"sibling to external", f.b, 3, 1, "fwd scion-out-transit"},
				{"inside to external", f.b, inside, 1, "fwd scion-out"},
			} {
				t.Run(d.name, func(t *testing.T) { f.run(t, d) })
			}
		})
	}
}

// flood is a lab with a router between a and b.
type flood struct {
	lab              *lab.Lab
	a, b, rutA, rutB load.End
	toB, toA         string // the interfaces by which packets to b and to a come in
}

// direction is a way through the router: from an end, in by interface ID ingress and out by egress, forwarded under a reason.
type direction struct {
	name            string
	from            load.End
	ingress, egress int
	reason          string
}

func (f *flood) run(t *testing.T, d direction) {
	into, to, iface := f.rutA, f.b, f.toB
	if d.from.Index == f.b.Index && d.from.Netns == f.b.Netns {
		into, to, iface = f.rutB, f.a, f.toA
	}
	const size = 300
	sent := frames(t, f.lab, "rut", d.from, into, scionpkt.GenerateOptions{
		Flows: 50, Sizes: []int{size, size + 700}, Ingress: d.ingress, Egress: d.egress,
	})
	sink := newSink(t, to, load.SinkOptions{MinLen: size})
	gen, err := load.NewGenerator(load.GeneratorOptions{Frames: sent, From: d.from, CPU: load.LastCPU()})
	check(t, err)
	defer gen.Close()
	p := plane(t, f.lab, "rut")
	counted := count(t, p, iface)
	wire, err := d.from.Stats()
	check(t, err)

	n, err := gen.Run(t.Context(), floodPackets)
	check(t, err)
	seen := settled(t, sink)

	after, err := d.from.Stats()
	check(t, err)
	arrived := n.Packets - (after.SendDropped - wire.SendDropped)
	moved := count(t, p, iface).since(counted)
	lost := moved.lost()
	// The kernel's own packets, such as neighbor discovery, are counted too, and losses in a full queue.
	maps.DeleteFunc(moved, func(k string, _ uint64) bool { return k == "pass other" || k == "lost transmit" })
	unfound := moved[unfoundHost]
	if d.egress == inside && unfound <= mostUnfound {
		delete(moved, unfoundHost)
	} else {
		unfound = 0
	}
	if want := (tally{d.reason: arrived - unfound}); !maps.Equal(moved, want) {
		t.Errorf("counters moved by %v, want %v of %d sent", moved, want, n.Packets)
	}
	if seen.Packets+lost+unfound != arrived {
		t.Errorf("the sink received %d of %d, counted losses %d, hosts not found %d", seen.Packets, arrived, lost, unfound)
	}
	if seen.Packets == 0 {
		t.Errorf("the sink received none of %d", arrived)
	}
}
