// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"culvert/internal/bench/load"
	"culvert/internal/lab"
	"culvert/internal/scion/scionpkt"
)

// between is a lab with a router under test and a numbered stream through it.
type between struct {
	lab    *lab.Lab
	as     lab.AS
	from   load.End
	into   load.End
	sink   *load.Sink
	config string
}

// streamSize is the length of a stream's packets. Packets of the control plane that may come beside them are shorter.
const streamSize = 400

func newBetween(t *testing.T, o lab.Options) *between {
	t.Helper()
	o.StaticNeighbors = true
	b := &between{lab: up(t, "veth", o)}
	var err error
	b.as, err = b.lab.AS("rut")
	check(t, err)
	b.from, b.into = end(t, b.lab, "a", "to-rut"), end(t, b.lab, "rut", "to-a")
	b.sink = newSink(t, end(t, b.lab, "b", "to-rut"),
		load.SinkOptions{MinLen: streamSize, Tags: 2 * numbers, TagOffset: streamSize - 8})
	b.config = b.as.RouterConfig
	return b
}

// stream makes a flow from interface 1 to interface 2.
func (b *between) stream(t *testing.T, key string, first uint32) *stream {
	t.Helper()
	return newStream(frames(t, b.lab, "rut", b.from, b.into, scionpkt.GenerateOptions{
		Key: key, Sizes: []int{streamSize}, Ingress: 1, Egress: 2,
	})[0], first)
}

// serve starts 'culvert scion run' and waits until its own program is on the interfaces and all links have next hops.
func (b *between) serve(t *testing.T) *process {
	t.Helper()
	return b.serveAs(t, program(), "scion", "run", "--config", b.config)
}

// serveAs is serve for a command that runs culvert.
func (b *between) serveAs(t *testing.T, argv ...string) *process {
	t.Helper()
	before := xdpProgram(t, b.lab, "rut", "to-a")
	p := start(t, b.lab, "rut", argv...)
	b.awaitSwap(t, p, before)
	wait(t, "links to be usable", func() bool {
		i := findPlane(t, b.lab, "rut")
		return i != nil && i.Served() && ready(t, i)
	})
	return p
}

func (b *between) awaitSwap(t *testing.T, p *process, before uint32) {
	t.Helper()
	wait(t, "the new program on both interfaces", func() bool {
		if !p.running() {
			t.Fatalf("culvert ended: %s", p.out.String())
		}
		a, b := xdpProgram(t, b.lab, "rut", "to-a"), xdpProgram(t, b.lab, "rut", "to-b")
		return a != before && a != 0 && a == b
	})
}

// TestRestartUnderLoad kills, ends, replaces and reconfigures the process in every way while packets flow. Each packet must
// arrive once, and the counters must go on.
func TestRestartUnderLoad(t *testing.T) {
	b := newBetween(t, lab.Options{Name: "rs"})
	const step = 200 // rounds of the load

	p := b.serve(t)
	before := count(t, plane(t, b.lab, "rut"), "to-a")
	s := b.stream(t, "", 0)
	load := startLoad(t, b.from, s)
	load.wait(step)

	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL} {
		p.end(sig)
		load.wait(step)
		p = b.serve(t)
		load.wait(step)
	}
	t.Log("killed while taking over")
	p.end(syscall.SIGKILL)
	for range 8 {
		b.killInTakeover(t)
	}
	p = b.serve(t)
	load.wait(step)
	t.Log("changed topology")
	p.end(syscall.SIGTERM)
	addInterface(t, b.as)
	p = b.serve(t)
	load.wait(step)
	t.Log("another process on top of a running one")
	out, err := b.lab.Run(t.Context(), "rut", program(), "scion", "run", "--config", b.config)
	if exitStatus(err) != 1 {
		t.Errorf("second process: exit status %d, want 1: %s", exitStatus(err), out)
	}
	load.wait(step)
	t.Log("attached without a process, many times, with packets at every moment")
	p.end(syscall.SIGKILL)
	node := nodeConfig(t, b.lab, "rut")
	load.breathless.Store(true)
	for range 8 {
		culvert(t, b.lab, "rut", "attach", "-c", node, "to-a", "to-b")
	}
	load.breathless.Store(false)
	load.wait(step)
	t.Log("a process again")
	b.serve(t)
	load.wait(step)

	load.stop()
	settled(t, b.sink)
	s.wantAll(t, b.sink)
	moved := count(t, plane(t, b.lab, "rut"), "to-a").since(before)
	if got, want := moved["fwd scion-br-transit"], s.sent.Load(); got != want || moved.lost() != 0 {
		t.Errorf("counters moved by %v, want %d packets forwarded", moved, want)
	}
}

// killInTakeover starts a process and kills it as soon as it has pinned something, while it is adopting the data plane.
func (b *between) killInTakeover(t *testing.T) {
	t.Helper()
	before := pins(t, b.lab, "rut")
	p := start(t, b.lab, "rut", program(), "scion", "run", "--config", b.config)
	wait(t, "the new process to pin something", func() bool { return !slices.Equal(pins(t, b.lab, "rut"), before) })
	p.end(syscall.SIGKILL)
}

// addInterface gives the router of an AS one more interface: interface 1 again, with other ports.
func addInterface(t *testing.T, as lab.AS) {
	t.Helper()
	path := filepath.Join(as.ConfigDir, "topology.json")
	b, err := os.ReadFile(path)
	check(t, err)
	var topo map[string]any
	check(t, json.Unmarshal(b, &topo))
	table := func(v any, key string) map[string]any {
		m, ok := v.(map[string]any)[key].(map[string]any)
		if !ok {
			t.Fatalf("topology has no table %s", key)
		}
		return m
	}
	interfaces := table(table(topo["border_routers"], as.RouterID), "interfaces")
	added := map[string]any{}
	for k, v := range table(interfaces, "1") {
		added[k] = v
	}
	added["underlay"] = map[string]any{
		"local":  withPort(as.Links[0].Local, 50007),
		"remote": withPort(as.Links[0].Remote, 50007),
	}
	added["remote_interface_id"] = 9
	interfaces["9"] = added
	b, err = json.Marshal(topo)
	check(t, err)
	check(t, os.WriteFile(path, b, 0o644))
}
