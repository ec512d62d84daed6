// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/lb/lbplane"
)

// newInstance attaches a load balancer to an interface in a new network namespace. Both are gone at the end of the test.
func newInstance(t testing.TB, o lbplane.Options) *datapath.Instance {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lb0"}, PeerName: "lb1"}); err != nil {
		t.Fatal(err)
	}
	inst, err := datapath.Attach(datapath.Options{Name: "balance", Interfaces: []string{"lb0"}, Temporary: true, Parts: []datapath.Part{lbplane.NewPart(o)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(inst.Close)
	return inst
}

// resolve makes the next hops of all backends known.
func resolve(t testing.TB, inst *datapath.Instance) {
	t.Helper()
	err := lbplane.Edit(inst, func(p *lbplane.Plane) error {
		s, before, _, err := read(p)
		if err != nil {
			return err
		}
		return finish(p, s, s, before, allUp(&s), nothing)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// view returns the plane and the stored state.
func view(t testing.TB, inst *datapath.Instance) (*lbplane.Plane, State) {
	t.Helper()
	p, err := lbplane.View(inst)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Load(p)
	if err != nil {
		t.Fatal(err)
	}
	return p, s
}

// TestUnfinished has a process die while writing. The next process writes everything again.
func TestUnfinished(t *testing.T) {
	v := vip(t, "192.0.2.1:80/tcp", "10.0.0.11", "10.0.0.12")
	gone := vip(t, "192.0.2.2:443/udp", "10.0.0.11")
	gone.ServerID, gone.Backends[0].ServerID = 1, "0a"
	inst := newInstance(t, lbplane.Options{RingSize: 17, Fill: Fill(State{VIPs: []VIP{v, gone}})})
	resolve(t, inst)
	p, s := view(t, inst)
	before := s.clone()
	// The process has stored the new state, and has written nothing to the maps.
	s.VIPs = s.VIPs[:1]
	s.VIPs[0].Hash = HashSource
	s.VIPs[0].Backends[1].Weight = 0
	s.Unfinished = true
	if err := s.store(p); err != nil {
		t.Fatal(err)
	}
	if err := Edit(inst, func(*State) error { return nil }); err != nil {
		t.Fatal(err)
	}
	vips, err := p.VIPs()
	if err != nil {
		t.Fatal(err)
	}
	if got := vips[v.Service.Key()]; len(vips) != 1 || !got.Source || got.Empty {
		t.Errorf("got %+v", vips)
	}
	ring, err := p.Ring(before.VIPs[0].Number)
	if err != nil {
		t.Fatal(err)
	}
	for n, o := range ring {
		if o != before.VIPs[0].Backends[0].ID {
			t.Fatalf("position %d has backend %x", n, o)
		}
	}
	if _, s := view(t, inst); s.Unfinished {
		t.Error("still unfinished")
	}
	deleted := before.VIPs[1]
	if backend, err := p.Backend(deleted.Backends[0].ID.Number()); err != nil || backend.Used {
		t.Errorf("the backend of the deleted VIP keeps its flows: %v: %+v", err, backend)
	}
	if ring, err := p.Ring(deleted.Number); err != nil || ring != nil {
		t.Errorf("its ring is left: %v", err)
	}
	if ids, err := p.ServerIDs(deleted.Number); err != nil || len(ids) != 0 {
		t.Errorf("its server IDs are left: %v: %v", err, ids)
	}
}

// TestUnfinishedLeftovers has a process die while deleting a backend. The next process deletes the backend.
func TestUnfinishedLeftovers(t *testing.T) {
	v := vip(t, "192.0.2.1:80/tcp", "10.0.0.11", "10.0.0.12")
	inst := newInstance(t, lbplane.Options{RingSize: 17, Fill: Fill(State{VIPs: []VIP{v}})})
	resolve(t, inst)
	p, s := view(t, inst)
	gone := s.VIPs[0].Backends[1].ID
	s.VIPs[0].Backends = s.VIPs[0].Backends[:1]
	s.Unfinished = true
	if err := s.store(p); err != nil {
		t.Fatal(err)
	}
	if err := Edit(inst, func(*State) error { return nil }); err != nil {
		t.Fatal(err)
	}
	backend, err := p.Backend(gone.Number())
	if err != nil {
		t.Fatal(err)
	}
	if backend.Used {
		t.Errorf("a backend that was deleted keeps its flows: %+v", backend)
	}
}

// TestRefusedEdit leaves everything as it was.
func TestRefusedEdit(t *testing.T) {
	inst := newInstance(t, lbplane.Options{RingSize: 17, Fill: Fill(State{VIPs: []VIP{vip(t, "192.0.2.1:80/tcp", "10.0.0.11")}})})
	p, before := view(t, inst)
	serial, err := p.Serial()
	if err != nil {
		t.Fatal(err)
	}
	err = Edit(inst, func(s *State) error {
		s.VIPs[0].Hash = HashSource
		s.VIPs[0].Backends[0].Weight = MaxWeight + 1
		return nil
	})
	if err == nil || err.Error() != "VIP 192.0.2.1:80/tcp: backend 10.0.0.11: weight 65536: use 0 to 65535" {
		t.Errorf("got %v", err)
	}
	now, err := p.Serial()
	if _, after := view(t, inst); err != nil || now != serial || after.VIPs[0].Hash != before.VIPs[0].Hash {
		t.Errorf("%v: %+v", err, after)
	}
}

// TestCountersAreNew gives the number of a deleted backend to another one, which starts with counters of zero.
func TestCountersAreNew(t *testing.T) {
	v := vip(t, "192.0.2.1:80/tcp", "10.0.0.11")
	inst := newInstance(t, lbplane.Options{RingSize: 17, Fill: Fill(State{VIPs: []VIP{v}})})
	p, s := view(t, inst)
	backend := s.VIPs[0].Backends[0].ID
	if err := p.SetHealth(lbplane.Health{Backend: backend, State: lbplane.Down, Checks: 7}); err != nil {
		t.Fatal(err)
	}
	edit := func(change func(*State) error) {
		t.Helper()
		if err := Edit(inst, change); err != nil {
			t.Fatal(err)
		}
	}
	edit(func(s *State) error { return s.setWeight(v.Service, 0) })
	if h, err := p.Health(backend.Number()); err != nil || h.Checks != 7 {
		t.Errorf("%v: %+v", err, h)
	}
	edit(func(s *State) error { _, err := s.DeleteVIP(v.Service); return err })
	if b, err := p.Backend(backend.Number()); err != nil || b.Used {
		t.Errorf("%v: %+v", err, b)
	}
	edit(func(s *State) error { s.VIPs = []VIP{v}; return nil })
	_, s = view(t, inst)
	again := s.VIPs[0].Backends[0].ID
	if again != lbplane.NewBackendID(backend.Number(), backend.Generation()+1) {
		t.Errorf("backend %x after %x", again, backend)
	}
	if h, err := p.Health(backend.Number()); err != nil || h.Checks != 0 || h.Backend != again {
		t.Errorf("%v: %+v", err, h)
	}
}

// setWeight sets the weight of all backends of a VIP.
func (s *State) setWeight(k Service, w uint32) error {
	for n := range s.find(k).Backends {
		s.find(k).Backends[n].Weight = w
	}
	return nil
}

// BenchmarkEdit changes one weight of a VIP with 1,000 backends, and with it the ring.
func BenchmarkEdit(b *testing.B) {
	v := VIP{Service: Service{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Protocol: TCP}, Hash: HashFlow, OnFailure: FailKeep, Encap: EncapIPIP}
	for n := range 1000 {
		v.Backends = append(v.Backends, Backend{Addr: netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), Encap: EncapIPIP, Weight: 1})
	}
	inst := newInstance(b, lbplane.Options{Flows: 1000, Fill: Fill(State{VIPs: []VIP{v}})})
	resolve(b, inst)
	var weight uint32 = 1
	for b.Loop() {
		weight = 3 - weight
		err := Edit(inst, func(s *State) error {
			s.VIPs[0].Backends[500].Weight = weight
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// TestRunGC wants Run to free dead flows from its start on, and to unload the program at its end.
func TestRunGC(t *testing.T) {
	inst := newInstance(t, lbplane.Options{RingSize: 17})
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		for !gcRan(t) && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
	}()
	err = Run(ctx, Options{Instance: inst, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("GC has not run: %v", err)
	}
	if gcRan(t) {
		t.Error("the program of GC is still loaded")
	}
}

// gcRan reports whether this process has the program of GC and has run it.
func gcRan(t *testing.T) bool {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fdinfo")
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		text, _ := os.ReadFile("/proc/self/fdinfo/" + e.Name()) // it may be closed meanwhile
		_, id, _ := strings.Cut(string(text), "\nprog_id:\t")
		var n uint32
		if _, err := fmt.Sscan(id, &n); err != nil {
			continue
		}
		p, err := ebpf.NewProgramFromID(ebpf.ProgramID(n))
		if err != nil {
			continue
		}
		info, err := p.Info()
		stats, statsErr := p.Stats()
		p.Close()
		if err == nil && statsErr == nil && info.Name == "lb_gc" && stats.RunCount > 0 {
			return true
		}
	}
	return false
}
