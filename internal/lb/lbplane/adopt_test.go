// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/host/pins"
	"culvert/internal/testbed"
)

// attach closes the instance, as the end of a killed process does, and attaches again with changed options.
func (b *bed) attach(change ...func(*Options)) {
	b.t.Helper()
	o := b.plane.Options()
	o.Fill = nil
	for _, c := range change {
		c(&o)
	}
	b.inst.Close()
	inst, err := datapath.Attach(datapath.Options{Name: "lb", Interfaces: []string{"lb0"}, Parts: []datapath.Part{filterplane.NewPart(), NewPart(o)}})
	b.must(err)
	b.t.Cleanup(inst.Close)
	b.inst = inst
	b.plane, err = View(inst)
	b.must(err)
}

// testBackends are the addresses of a world's backends.
var testBackends = []string{"10.0.0.11", "10.0.0.12", "10.0.0.13"}

// world is a bed with a VIP, its backends and known flows.
type world struct {
	*bed
	backends []Backend
	clients  []netip.AddrPort
	assigned map[netip.AddrPort]netip.Addr // the backend of each client
	sent     uint64
}

const worldVIP, worldPort = "192.0.2.1:80", 80

func newWorld(t *testing.T, flows int, o Options) *world {
	w := &world{bed: newBed(t, o), assigned: make(map[netip.AddrPort]netip.Addr)}
	for n, addr := range testBackends {
		w.backends = append(w.backends, w.backend(uint32(n+1), 0, addr))
	}
	w.vip(0, worldVIP, 6, w.backends)
	w.must(w.plane.SetState([]byte("what user space knows")))
	w.must(w.plane.SetHealth(Health{Backend: w.backends[1].ID, State: Down, Failures: 3, Text: "refused"}))
	r := rand.New(rand.NewPCG(3, 4))
	for range flows {
		c := randomClient(r, false)
		w.clients = append(w.clients, c)
		w.assigned[c] = w.send(c, &layers.TCP{SYN: true})
		w.send(c, &layers.TCP{ACK: true})
	}
	return w
}

// send runs the program on a packet of a client's flow and returns the backend that it is sent to.
func (w *world) send(c netip.AddrPort, tcp *layers.TCP) netip.Addr {
	w.t.Helper()
	_, out, err := w.inst.TestRun(w.packet(c.String(), worldVIP, tcp, nil), "lb0")
	w.must(err)
	w.sent++
	_, dst, _ := outer(w.t, out)
	return dst
}

// fill writes a ring that assigns all new flows to the last backend.
func (w *world) fill(p *Plane) error {
	ring := make([]BackendID, p.Options().RingSize)
	for n := range ring {
		ring[n] = w.backends[len(w.backends)-1].ID
	}
	return p.SetRing(0, ring)
}

// check sends a packet of each flow, and checks that flows, state, backends, health, VIPs and counters are as they were.
func (w *world) check() {
	w.t.Helper()
	moved := 0
	for c, addr := range w.assigned {
		if w.send(c, &layers.TCP{ACK: true}) != addr {
			moved++
		}
	}
	if moved > 0 {
		w.t.Errorf("%d of %d flows have got another backend", moved, len(w.assigned))
	}
	state, err := w.plane.State()
	if err != nil || string(state) != "what user space knows" {
		w.t.Errorf("the state is %q, %v", state, err)
	}
	var sum uint64
	for _, backend := range w.backends {
		if got, err := w.plane.Backend(backend.ID.Number()); err != nil || got != backend {
			w.t.Errorf("backend %+v, %v, was %+v", got, err, backend)
		}
		traffic, err := w.plane.Traffic(backend.ID.Number())
		w.must(err)
		sum += traffic.Packets
	}
	if sum != w.sent {
		w.t.Errorf("the backends have got %d packets, %d were sent", sum, w.sent)
	}
	if h, err := w.plane.Health(w.backends[1].ID.Number()); err != nil || h.Text != "refused" || h.State != Down || h.Failures != 3 {
		w.t.Errorf("health %+v, %v", h, err)
	}
	want := map[VIPKey]VIP{{Addr: netip.MustParseAddr("192.0.2.1"), Proto: 6, Port: worldPort}: {}}
	if vips, err := w.plane.VIPs(); err != nil || !maps.Equal(vips, want) {
		w.t.Errorf("VIPs %+v, %v", vips, err)
	}
	_, by, _ := testbed.Counted(w.t, w.inst, "lb0")
	if by["fwd lb-flow"]+by["fwd lb-new"] != w.sent {
		w.t.Errorf("%d packets sent, counted %v", w.sent, by)
	}
}

// TestAdopt attaches again with other options. Each flow keeps its backend, though the ring would assign it to another one.
func TestAdopt(t *testing.T) {
	const flows = 100
	for _, tt := range []struct {
		name   string
		change func(*Options)
		rings  bool // the new program has the rings of the old one
	}{
		{"same", func(*Options) {}, true},
		{"larger flow table", func(o *Options) { o.Flows = 9999 }, true},
		{"smaller flow table", func(o *Options) { o.Flows = 1000 }, true},
		{"larger rings", func(o *Options) { o.RingSize = 1009 }, false},
		{"smaller rings", func(o *Options) { o.RingSize = 11 }, false},
		{"more VIPs", func(o *Options) { o.VIPs = 300 }, true},
		{"fewer VIPs", func(o *Options) { o.VIPs = 2 }, true},
		{"more backends", func(o *Options) { o.Backends = 20000 }, true},
		{"fewer backends", func(o *Options) { o.Backends = 4 }, true},
		{"another seed", func(o *Options) { o.Seed = [6]uint32{9, 8, 7} }, true},
		{"other times", func(o *Options) { o.IdleTCP, o.IdleUDP, o.InsertRate = MaxIdle, MaxIdle, 77 }, true},
		{"everything", func(o *Options) {
			*o = Options{Flows: 1234, RingSize: 13, VIPs: 3, Backends: 9, InsertRate: 5000, IdleTCP: MaxIdle}
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, flows, Options{Flows: 5000})
			w.must(w.fill(w.plane))
			w.check()
			w.attach(tt.change, func(o *Options) {
				o.Fill = func(p *Plane) error {
					ring, err := p.Ring(0)
					w.must(err)
					if there := len(ring) > 0; there != tt.rings {
						t.Errorf("the new program has a ring: %v, want %v", there, tt.rings)
					}
					return w.fill(p)
				}
			})
			if !w.inst.Adopted() {
				t.Error("not adopted")
			}
			w.check()
			if addr := w.send(netip.MustParseAddrPort("198.51.100.1:1"), &layers.TCP{SYN: true}); addr != w.backends[2].Addr {
				t.Errorf("a new flow went to %v", addr)
			}
			w.attach() // with the same options
			w.check()
		})
	}
}

// TestForgedEndGoesOn wants no flow to move after a forged RST, a minute of silence and a flow table of another size.
func TestForgedEndGoesOn(t *testing.T) {
	for _, flows := range []int{9999, 1000} {
		w := newWorld(t, 100, Options{Flows: 5000})
		for _, c := range w.clients {
			w.send(c, ends["RST"])
		}
		w.must(w.fill(w.plane))
		w.age(DefaultIdleClosing + 2*Tick)
		w.attach(func(o *Options) { o.Flows, o.Fill = flows, w.fill })
		w.check()
	}
}

// TestOffAndOn attaches without the load balancer, and then with it again. It starts empty.
func TestOffAndOn(t *testing.T) {
	w := newWorld(t, 5, Options{})
	o := w.plane.Options()
	w.inst.Close()
	inst, err := datapath.Attach(datapath.Options{Name: "lb", Interfaces: []string{"lb0"}})
	w.must(err)
	if _, err := View(inst); err == nil {
		t.Error("View returns a load balancer that is off")
	}
	if err := Edit(inst, func(*Plane) error { return nil }); !errors.Is(err, errOff) {
		t.Errorf("changing it: %v", err)
	}
	inst.Close()
	calls := 0
	o.Fill = func(p *Plane) error {
		calls++
		if b, err := p.State(); err != nil || b != nil {
			t.Errorf("state %q, %v", b, err)
		}
		if vips, err := p.VIPs(); err != nil || len(vips) != 0 {
			t.Errorf("VIPs %v, %v", vips, err)
		}
		if backend, err := p.Backend(1); err != nil || backend.Used {
			t.Errorf("backend %+v, %v", backend, err)
		}
		return p.Flows(func(f Flow) bool { t.Errorf("flow %+v", f); return true })
	}
	inst, err = datapath.Attach(datapath.Options{Name: "lb", Interfaces: []string{"lb0"}, Parts: []datapath.Part{filterplane.NewPart(), NewPart(o)}})
	w.must(err)
	w.inst = inst
	defer inst.Close()
	w.plane, err = View(inst)
	w.must(err)
	if calls != 1 || !inst.Adopted() {
		t.Errorf("filled %d times, adopted %v", calls, inst.Adopted())
	}
	one := w.backend(1, 0, "10.0.0.99")
	w.vip(0, worldVIP, 6, []Backend{one})
	if addr := w.send(w.clients[0], &layers.TCP{ACK: true}); addr != one.Addr {
		t.Errorf("left to %v", addr)
	}
}

// TestRefusedSizes attaches with tables that are too small for what is in use. The attempts change nothing.
func TestRefusedSizes(t *testing.T) {
	w := newWorld(t, 5, Options{})
	w.vip(7, "192.0.2.7:80", 6, w.backends)
	refused := func(want string, change func(*Options)) {
		t.Helper()
		o := w.plane.Options()
		change(&o)
		w.inst.Close()
		before := testbed.XDPProgram(t, "lb0")
		inst, err := datapath.Attach(datapath.Options{Name: "lb", Interfaces: []string{"lb0"}, Parts: []datapath.Part{filterplane.NewPart(), NewPart(o)}})
		if err == nil {
			inst.Close()
			t.Fatal("attached")
		}
		if s := err.Error(); !strings.Contains(s, want) || strings.Contains(s, "\n") {
			t.Errorf("error %q, want one line with %q", s, want)
		}
		if now := testbed.XDPProgram(t, "lb0"); now != before {
			t.Errorf("lb0 carries program %d, before %d", now, before)
		}
		w.inst, err = datapath.OpenHere("lb")
		w.must(err)
		w.t.Cleanup(w.inst.Close)
		w.plane, err = View(w.inst)
		w.must(err)
	}
	refused("VIP 192.0.2.7 has number 7, but there is room for 7 only", func(o *Options) { o.VIPs = 7 })
	refused("backend 10.0.0.13 has number 3, but there is room for 3 only", func(o *Options) { o.Backends = 3 })
	refused("no rings for you", func(o *Options) {
		o.RingSize, o.Fill = 19, func(p *Plane) error {
			// All of this is written to maps of the new program alone.
			return errors.Join(p.SetState([]byte("other")), p.SetBackend(Backend{ID: w.backends[0].ID}),
				p.DeleteVIP(VIPKey{Addr: netip.MustParseAddr("192.0.2.1"), Proto: 6, Port: worldPort}), errors.New("no rings for you"))
		}
	})
	w.must(w.plane.DeleteVIP(VIPKey{Addr: netip.MustParseAddr("192.0.2.7"), Proto: 6, Port: 80}))
	w.check()
	// With the same sizes the maps are shared, so what was written before the error is in force.
	refused("not today", func(o *Options) {
		o.Flows, o.Fill = 77, func(p *Plane) error {
			return errors.Join(p.SetState([]byte("other")), errors.New("not today"))
		}
	})
	if state, err := w.plane.State(); err != nil || string(state) != "other" {
		t.Errorf("the state is %q, %v", state, err)
	}
}

// TestOtherLayouts attaches again over another version of culvert. Maps of another layout begin empty, and nothing at all is
// adopted if the stored state has another version or lb_state another layout.
func TestOtherLayouts(t *testing.T) {
	layout := func(name string) func(map[string]any) {
		return func(d map[string]any) { d["Layouts"].(map[string]any)[name] = "another" }
	}
	for name, tt := range map[string]struct {
		describe func(map[string]any)
		want     string
	}{
		"backends": {layout(bpfobj.PipelineMapLbBackends), "state, VIPs, ring, flows"},
		"flows":    {layout(bpfobj.PipelineMapLbFlows), "state, VIPs, ring, backends"},
		"rings":    {layout(bpfobj.PipelineMapLbRings), "state, VIPs, backends, flows"},
		"VIPs":     {layout(bpfobj.PipelineMapLbVips), "state, ring, backends, flows"},
		"state":    {layout(bpfobj.PipelineMapLbState), ""},
		"version of the state": {
			func(d map[string]any) {
				d["Stages"].(map[string]any)[Stage].(map[string]any)["Version"] = stateVersion - 1
			}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 20, Options{})
			w.must(w.fill(w.plane))
			w.inst.Close()
			testbed.EditDescription(t, "lb", tt.describe)
			w.attach(func(o *Options) {
				o.Fill = func(p *Plane) error {
					if got := w.adopted(p); got != tt.want {
						t.Errorf("adopted %q, want %q", got, tt.want)
					}
					return nil
				}
			})
		})
	}
}

// adopted lists which of the world's contents a new program has.
func (w *world) adopted(p *Plane) string {
	w.t.Helper()
	state, err := p.State()
	w.must(err)
	vips, err := p.VIPs()
	w.must(err)
	ring, err := p.Ring(0)
	w.must(err)
	backend, err := p.Backend(1)
	w.must(err)
	flows := 0
	w.must(p.Flows(func(Flow) bool { flows++; return true }))
	var names []string
	for _, part := range []struct {
		name  string
		there bool
	}{
		{"state", state != nil},
		{"VIPs", len(vips) > 0},
		{"ring", ring != nil},
		{"backends", backend.Used},
		{"flows", flows > 0},
	} {
		if part.there {
			names = append(names, part.name)
		}
	}
	return strings.Join(names, ", ")
}

// TestSavedState pins what later processes read. Another key needs another stateVersion.
func TestSavedState(t *testing.T) {
	got, err := json.Marshal(savedState{})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"Options":{"RingSize":0,"Flows":0,"VIPs":0,"Backends":0,"InsertRate":0,"Seed":[0,0,0,0,0,0],` +
		`"IdleNew":0,"IdleTCP":0,"IdleClosing":0,"IdleUDP":0,"Unclaimed":0},"Secret":null}`
	if string(got) != want || stateVersion != 2 {
		t.Errorf("version %d is %s, want %s: raise stateVersion", stateVersion, got, want)
	}
}

// TestStateDied ends SetState after each of its steps, and in the middle of each. The state from before stays until the last
// step is done.
func TestStateDied(t *testing.T) {
	b := newBed(t, Options{})
	m := b.inst.Map(bpfobj.PipelineMapLbState)
	r := rand.New(rand.NewPCG(5, 6))
	noise := func(size int) []byte { // gzip cannot compress it
		state := make([]byte, size)
		for n := range state {
			state[n] = byte(r.Uint32())
		}
		return state
	}
	var kept []byte
	read := func(what string, want []byte) {
		t.Helper()
		if got, err := b.plane.State(); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: %d bytes, %v, want %d", what, len(got), err, len(want))
		}
	}
	read("nothing", nil)
	for round, size := range []int{100_000, 300_000, 1, 2_000_000, 0, 200_000} {
		state := noise(size)
		writes, err := b.plane.stateWrites(state)
		b.must(err)
		for n, w := range writes {
			torn := w
			var before bpfobj.PipelineLbChunk
			b.must(m.Lookup(w.key, &before))
			copy(torn.chunk.Bytes[len(torn.chunk.Bytes)/2:], before.Bytes[len(before.Bytes)/2:])
			if n < len(writes)-1 {
				b.must(m.Put(torn.key, torn.chunk))
				read(fmt.Sprintf("round %d, within step %d", round, n), kept)
			}
			b.must(m.Put(w.key, w.chunk))
			if n < len(writes)-1 {
				read(fmt.Sprintf("round %d, after step %d", round, n), kept)
			}
			if n == len(writes)/2 { // another process writes a state of its own
				other := noise(size / 2)
				b.must(b.plane.SetState(other))
				kept = other
				read("another process's", kept)
				break
			}
		}
		before, err := b.plane.Serial()
		b.must(err)
		b.must(b.plane.SetState(state))
		kept = state
		read("done", kept)
		if after, err := b.plane.Serial(); err != nil || after != before+1 {
			t.Errorf("serial %d after %d, %v", after, before, err)
		}
	}
	if err := b.plane.SetState(noise(3_000_000)); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("too much: %v", err)
	}
	read("after too much", kept)
}

// TestDetached wants no program, pins and maps to be left after detaching.
func TestDetached(t *testing.T) {
	for name, detach := range map[string]func(*datapath.Instance) error{
		"the last interface": func(i *datapath.Instance) error { return i.Detach("lb0") },
		"all":                (*datapath.Instance).DetachAll,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, Options{})
			var ids []ebpf.MapID
			spec, err := bpfobj.LoadPipeline()
			w.must(err)
			for name := range spec.Maps {
				m := w.inst.Map(name)
				if m == nil || !strings.HasPrefix(name, "lb_") {
					continue
				}
				if info, err := m.Info(); err == nil {
					id, _ := info.ID()
					ids = append(ids, id)
				}
			}
			w.must(detach(w.inst))
			if left := testbed.Tree(t); left != "" || testbed.XDPProgram(t, "lb0") != 0 {
				t.Errorf("program %d, pins %s", testbed.XDPProgram(t, "lb0"), left)
			}
			w.inst.Close()
			if len(ids) < len(stageMaps) {
				t.Fatalf("%d maps", len(ids))
			}
			for _, id := range ids {
				awaitGone(t, id)
			}
			if err := Edit(w.inst, func(*Plane) error { return nil }); !errors.Is(err, pins.ErrGone) {
				t.Errorf("changing what is gone: %v", err)
			}
		})
	}
}

// awaitGone waits until the kernel has freed a map.
func awaitGone(t *testing.T, id ebpf.MapID) {
	t.Helper()
	for end := time.Now().Add(testbed.Patience); ; time.Sleep(10 * time.Millisecond) {
		m, err := ebpf.NewMapFromID(id)
		if errors.Is(err, os.ErrNotExist) {
			return
		}
		if err == nil {
			m.Close()
		}
		if time.Now().After(end) {
			t.Fatalf("map %d is still there, %v", id, err)
		}
	}
}

// outer decodes a frame that was sent, and returns the addresses of its outer header and what is behind that header.
func outer(t testing.TB, frame []byte) (src, dst netip.Addr, inner []byte) {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	if e := p.ErrorLayer(); e != nil {
		t.Fatalf("the frame does not decode: %v\n%x", e.Error(), frame)
	}
	n := p.NetworkLayer()
	if n == nil {
		t.Fatalf("the frame has no IP packet: %x", frame)
	}
	src, _ = netip.AddrFromSlice(n.NetworkFlow().Src().Raw())
	dst, _ = netip.AddrFromSlice(n.NetworkFlow().Dst().Raw())
	return src, dst, n.LayerPayload()
}
