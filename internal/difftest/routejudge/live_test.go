// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netns"

	"culvert/internal/route"
)

// listen attaches a program to the far ends. A veth without a program or GRO at its peer drops frames that XDP redirects to
// it.
func (w *twin) listen() {
	t := w.t
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "listen", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
	check(t, err)
	t.Cleanup(func() { prog.Close() })
	check(t, netns.Set(w.world))
	for i := range ports {
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: w.far[i], Flags: link.XDPDriverMode})
		check(t, err)
		t.Cleanup(func() { l.Close() })
	}
	w.enter()
}

// settled returns all frames that have come out of a router with programs on its ports. There each port has a queue of its
// own. Once a first probe of each port has come back, frames that were redirected before it are on their way; a second probe
// follows them.
func (w *twin) settled() []output {
	w.t.Helper()
	all := []int{0, 1, 2, 3}
	return append(w.wire.await(all...), w.wire.await(all...)...)
}

// differ describes how the outcomes of two routers differ, "" if they do not. spread tells that packets of several flows may overtake each
// other.
func differ(kernel, fast *outcome, spread bool) string {
	if len(kernel.forwards) != len(fast.forwards) {
		return fmt.Sprintf("forwarded %d and %d times", len(kernel.forwards), len(fast.forwards))
	}
	for i, o := range kernel.forwards {
		f := fast.forwards[i]
		if o.port != f.port {
			return fmt.Sprintf("forwarded to ports %d and %d", o.port, f.port)
		}
		if !same(f.frame, o.frame) {
			return "forwarded differently"
		}
	}
	a, b := answers(kernel, spread), answers(fast, spread)
	if !slices.Equal(a, b) {
		return fmt.Sprintf("%s %v and %v", otherAnswers, a, b)
	}
	return ""
}

// otherAnswers is how differ describes different answers.
const otherAnswers = "answered by"

// answeredOtherwise sends packets to which the twins gave different answers again, after a pause, and returns how many are answered
// differently still. The kernel answers only so many unreachable destinations of a source: five at once and one a second after them
// (ip_error), so that a twin that took longer, on a machine with other work, has answered more of them.
func answeredOtherwise(c *judge, fast *twin, unsure []*packet, spread bool) (faults int) {
	c.t.Helper()
	const rounds, pause = 3, 6 * time.Second // until a source may get five again
	for round := range rounds {
		if len(unsure) == 0 {
			return 0
		}
		time.Sleep(pause)
		var left []*packet
		for _, p := range unsure {
			one := []*packet{p}
			want := c.sendToKernel(one)[p.id]
			fast.wire.put(p.port, p.frame)
			got, _ := attribute(one, fast.settled())
			what := differ(want, got[p.id], spread)
			if what == "" {
				continue
			}
			left = append(left, p)
			if round == rounds-1 {
				c.t.Error(complaint{what: what, packet: p, kernel: want}, "\n  got", got[p.id])
			}
		}
		unsure = left
	}
	return len(unsure)
}

// answers returns the answers by port and content. It leaves out redirects, whose rate the kernel limits by time. With spread it also leaves
// out that an IPv4 destination cannot be reached: of those, the kernel answers only the first five from a source (ip_error), and the order
// of a source's flows says which they are.
func answers(k *outcome, spread bool) (all []string) {
	for _, o := range k.answers {
		v6 := bytes.Equal(o.frame[12:14], []byte{0x86, 0xdd})
		h, _ := parse(v6, o.frame[14:])
		if h.proto == 1 && h.payload[0] == 5 || h.proto == 58 && h.payload[0] == 137 {
			continue
		}
		if spread && h.proto == 1 && h.payload[0] == 3 && h.payload[1] != 4 {
			continue
		}
		all = append(all, fmt.Sprintf("port %d protocol %d: %x", o.port, h.proto, h.payload[:2]))
	}
	return all
}

// TestLive sends the same packets to both twins and compares what comes out on the wires. Workers, which spread packets over CPUs, change
// nothing, neither on the wires nor in the counters.
func TestLive(t *testing.T) {
	var alone map[string]uint64
	t.Run("alone", func(t *testing.T) { alone = live(t) })
	for _, list := range [][]int{{0, 1}, {0}, {1}} {
		t.Run(fmt.Sprint("workers ", list), func(t *testing.T) {
			reasons := live(t, list...)
			delete(reasons, otherPackets)
			delete(alone, otherPackets)
			if !maps.Equal(reasons, alone) {
				t.Errorf("counted %v, without workers %v", reasons, alone)
			}
		})
	}
}

// otherPackets is the reason of probes.
const otherPackets = "pass other"

// live is TestLive with workers on the given CPUs. It returns the counters.
func live(t *testing.T, workers ...int) map[string]uint64 {
	pinToCPU(t)
	kernel, fast := newTwin(t), newTwin(t)
	g := newGenerator(4)
	lines := g.nexthopObjects() + g.fill(300)
	for _, w := range []*twin{kernel, fast} {
		w.enter()
		w.ip(lines)
	}
	v := attach(fast, smallMirror, workers...)
	v.startControlPlane(route.Options{})
	c := newJudge(t, kernel, g)
	faults, redirected := 0, 0
	var unsure []*packet // the twins gave other answers to them
	for _, k := range slices.Concat(kinds4, kinds6) {
		batch := g.batch(k, 100)
		want, sent := c.sendToKernel(batch), v.verdicts(-1)
		for _, p := range batch {
			fast.wire.put(p.port, p.frame)
			if p.port != portWithoutXDP {
				sent++
			}
		}
		v.awaitVerdicts(sent)
		got, strays := attribute(batch, fast.settled())
		for _, s := range strays {
			t.Errorf("out of port %d came what nothing was sent for: %x", s.port, s.frame)
		}
		for _, p := range batch {
			if len(got[p.id].forwards) > 0 {
				redirected++
			}
			what := differ(want[p.id], got[p.id], workers != nil)
			if strings.HasPrefix(what, otherAnswers) {
				unsure = append(unsure, p)
				continue
			}
			if what != "" {
				if faults++; faults < 20 {
					t.Error(complaint{what: what, packet: p, kernel: want[p.id]}, "\n  got", got[p.id])
				}
			}
		}
	}
	reasons := v.reasons()
	t.Logf("%d packets came out, %v", redirected, reasons)
	faults += answeredOtherwise(c, fast, unsure, workers != nil)
	if faults > 0 {
		t.Errorf("%d packets were treated differently", faults)
	}
	if reasons["fwd route"]+reasons["fwd route-fib"] < uint64(redirected)/4 {
		t.Errorf("%d packets came out, but few by the fast path: %v", redirected, reasons)
	}
	for _, cpu := range workers {
		if v.verdicts(cpu) == 0 {
			t.Errorf("worker %d has got no packet", cpu)
		}
	}
	return reasons
}

// awaitVerdicts waits until so many packets have a verdict. They may wait for their workers.
func (c *culvert) awaitVerdicts(want uint64) {
	c.t.Helper()
	for end := time.Now().Add(patience); c.verdicts(-1) < want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("%d packets have a verdict, of %d", c.verdicts(-1), want)
		}
	}
}

// verdicts returns how many packets have a verdict, by one CPU, or by all for -1.
func (c *culvert) verdicts(by int) (packets uint64) {
	c.t.Helper()
	all, err := c.inst.Ports()
	check(c.t, err)
	for _, p := range all {
		for _, cpu := range p.CPUs {
			if by < 0 || by == cpu.CPU {
				packets += cpu.Packets
			}
		}
	}
	return packets
}
