// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"culvert/internal/lb/lbplane"
)

// recorder is a data plane that records the calls of its methods. A call whose record begins with failAt returns an error.
type recorder struct {
	calls    []string
	rings    map[uint32][]lbplane.BackendID
	backends map[uint32]lbplane.Backend
	failAt   string
}

func newRecorder() *recorder {
	return &recorder{rings: make(map[uint32][]lbplane.BackendID), backends: make(map[uint32]lbplane.Backend)}
}

func (r *recorder) note(format string, args ...any) error {
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
	if r.failAt != "" && strings.HasPrefix(r.calls[len(r.calls)-1], r.failAt) {
		return fmt.Errorf("no %s", r.failAt)
	}
	return nil
}

func (r *recorder) SetBackend(backend lbplane.Backend) error {
	r.backends[backend.ID.Number()] = backend
	if !backend.Used {
		return r.note("backend %d gone", backend.ID.Number())
	}
	return r.note("backend %d", backend.ID.Number())
}

func (r *recorder) SetRing(vip uint32, ring []lbplane.BackendID) error {
	r.rings[vip] = ring
	return r.note("ring %d", vip)
}

func (r *recorder) DeleteRing(vip uint32) error { return r.note("ring %d gone", vip) }

func (r *recorder) SetVIP(k lbplane.VIPKey, v lbplane.VIP) error {
	return r.note("VIP %d empty %t", v.Number, v.Empty)
}

func (r *recorder) DeleteVIP(k lbplane.VIPKey) error { return r.note("VIP %v gone", k.Addr) }

func (r *recorder) SetServerID(vip uint32, id []byte, backend lbplane.BackendID) error {
	return r.note("ID %x of %d is %d", id, vip, backend.Number())
}

func (r *recorder) SetNamedVLAN(v lbplane.NamedVLAN) error {
	return r.note("VLAN %d of %v", v.ID, v.Addr)
}

func (r *recorder) DeleteNamedVLAN(v lbplane.NamedVLAN) error {
	return r.note("VLAN %d of %v gone", v.ID, v.Addr)
}

func (r *recorder) DeleteServerID(vip uint32, id []byte) error {
	return r.note("ID %x of %d gone", id, vip)
}

func (r *recorder) Name() string { return "recorder" }

func (r *recorder) SetState(b []byte) error {
	return r.note("unfinished %t", strings.Contains(string(b), `"unfinished":true`))
}

// written returns the calls since the last call of written.
func (r *recorder) written() string {
	s := strings.Join(r.calls, ", ")
	r.calls = nil
	return s
}

// allUp returns routes to all backends, of which none is down.
func allUp(s *State) live {
	l := live{routes: make(map[netip.Addr]route), down: make(map[lbplane.BackendID]bool)}
	for _, v := range s.VIPs {
		for _, b := range v.Backends {
			l.routes[b.Addr] = route{hop: lbplane.Hop{Port: 7, MTU: 1500}, source: netip.MustParseAddr("10.0.0.1")}
			if b.Addr.Is6() {
				l.routes[b.Addr] = route{hop: lbplane.Hop{Port: 7, MTU: 1500}, source: netip.MustParseAddr("fd00::1")}
			}
		}
	}
	return l
}

// numbered returns a state with numbers and IDs. old is the state before it.
func numbered(t *testing.T, old State, vips ...VIP) State {
	t.Helper()
	s := State{VIPs: vips}
	if err := s.number(old, small); err != nil {
		t.Fatal(err)
	}
	return s
}

// counts returns the number of positions that each backend has in a VIP's ring, by number of the backend.
func (r *recorder) counts(vip uint32) map[uint32]int {
	n := make(map[uint32]int)
	for _, o := range r.rings[vip] {
		n[o.Number()]++
	}
	return n
}

// failsOnce fails to store a state once, after others.
type failsOnce struct {
	*recorder
	after int
}

func (f *failsOnce) SetState(b []byte) error {
	err := f.recorder.SetState(b)
	if f.after--; f.after == -1 {
		return errors.New("no room")
	}
	return err
}

// TestReplaceFails wants the former state back, whatever fails: the first write of the new one, the last one, or what comes then.
func TestReplaceFails(t *testing.T) {
	old := numbered(t, State{}, vip(t, "192.0.2.1:80/tcp", "10.0.0.11", "10.0.0.12"))
	l := allUp(&old)
	now := old.clone()
	now.VIPs[0].Backends[1].Weight = 3
	const there, back = "unfinished true, ring 0, unfinished false", ", unfinished true, ring 0, unfinished false"
	for _, tt := range []struct {
		fails     int // the number of stores before the one that fails
		then      error
		want, err string
	}{
		{9, nil, there, "<nil>"},
		{0, nil, "unfinished true", "no room"},
		{1, nil, there + back, "no room"},
		{9, errors.New("no sockets"), there + back, "no sockets"},
	} {
		r := newRecorder()
		if err := write(r, small.RingSize, image{}, old.image(l)); err != nil {
			t.Fatal(err)
		}
		r.written()
		called := false
		err := replace(&failsOnce{r, tt.fails}, small.RingSize, old, now, old.image(l), l, func() error { called = true; return tt.then })
		if fmt.Sprint(err) != tt.err || called != (tt.fails == 9) {
			t.Errorf("store %d, then %v: error %v, want %s; then was called: %t", tt.fails, tt.then, err, tt.err, called)
		}
		if got := r.written(); got != tt.want {
			t.Errorf("store %d, then %v: %q, want %q", tt.fails, tt.then, got, tt.want)
		}
		if c := r.counts(0); (c[1] > 9) != (err == nil) {
			t.Errorf("store %d, then %v: positions %v", tt.fails, tt.then, c)
		}
	}
}

// TestWrite changes a state step by step, and checks what is written to the data plane and in which order.
func TestWrite(t *testing.T) {
	r := newRecorder()
	a := vip(t, "192.0.2.1:80/tcp", "10.0.0.11", "10.0.0.12")
	first := numbered(t, State{}, a)
	l := allUp(&first)
	step := func(what string, from, to image, want string) {
		t.Helper()
		if err := write(r, small.RingSize, from, to); err != nil {
			t.Fatal(err)
		}
		if got := r.written(); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	step("a VIP", image{}, first.image(l), "backend 0, backend 1, ring 0, VIP 0 empty false")
	if c := r.counts(0); c[0]+c[1] != 17 || c[0] < 8 || c[1] < 8 {
		t.Errorf("positions: %v", c)
	}
	step("nothing", first.image(l), first.image(l), "")

	heavier := first.clone()
	heavier.VIPs[0].Backends[1].Weight = 3
	step("a weight", first.image(l), heavier.image(l), "ring 0")
	if c := r.counts(0); c[0] != 4 || c[1] != 13 {
		t.Errorf("positions: %v", c)
	}
	moved := heavier.clone()
	moved.VIPs[0].Backends[0].Encap, moved.VIPs[0].Backends[0].GUEPort = EncapGUE, 6080
	step("an encapsulation", heavier.image(l), moved.image(l), "backend 0")

	drained := moved.clone()
	drained.VIPs[0].Backends[1].Drained = true
	step("a drain", moved.image(l), drained.image(l), "ring 0")
	if c := r.counts(0); c[0] != 17 {
		t.Errorf("positions: %v", c)
	}
	source := drained.clone()
	source.VIPs[0].Hash = HashSource
	step("a hash", drained.image(l), source.image(l), "VIP 0 empty false")

	// The last backend loses its next hop: the VIP is marked as empty before the ring is deleted.
	lost := allUp(&source)
	delete(lost.routes, netip.MustParseAddr("10.0.0.11"))
	step("no next hop", source.image(l), source.image(lost), "backend 0, VIP 0 empty true, ring 0 gone")
	step("the next hop again", source.image(lost), source.image(l), "backend 0, ring 0, VIP 0 empty false")

	// New backends are written before rings refer to them, and old ones are deleted last.
	next := numbered(t, source, vip(t, "192.0.2.1:80/tcp", "10.0.0.12", "10.0.0.13"), vip(t, "192.0.2.2:80/tcp", "10.0.0.11"))
	l = allUp(&next)
	for addr, w := range allUp(&source).routes {
		l.routes[addr] = w
	}
	step("others", source.image(l), next.image(l), "backend 2, backend 3, ring 0, ring 1, VIP 0 empty false, VIP 1 empty false, backend 0 gone")
	step("none", next.image(l), image{}, "VIP 192.0.2.1 gone, VIP 192.0.2.2 gone, ring 0 gone, ring 1 gone, backend 1 gone, backend 2 gone, backend 3 gone")
}

// TestWriteServerIDs writes server IDs after backends and deletes them before backends.
func TestWriteServerIDs(t *testing.T) {
	r := newRecorder()
	v := vip(t, "192.0.2.1:443/udp", "10.0.0.11", "10.0.0.12")
	v.ServerID, v.Backends[0].ServerID, v.Backends[1].ServerID = 2, "0a01", "0A02"
	first := numbered(t, State{}, v)
	l := allUp(&first)
	next := first.clone()
	next.VIPs[0].Backends[0].ServerID, next.VIPs[0].Backends[1].ServerID = "0a02", "0a03"
	gone := numbered(t, next, vip(t, "192.0.2.1:443/udp", "10.0.0.12"))
	for _, tt := range []struct {
		from, to image
		want     string
	}{
		{image{}, first.image(l), "backend 0, backend 1, ring 0, ID 0a01 of 0 is 0, ID 0a02 of 0 is 1, VIP 0 empty false"},
		{first.image(l), next.image(l), "ID 0a02 of 0 is 0, ID 0a03 of 0 is 1, ID 0a01 of 0 gone"},
		{next.image(l), gone.image(l), "ring 0, VIP 0 empty false, ID 0a02 of 0 gone, ID 0a03 of 0 gone, backend 0 gone"},
	} {
		if err := write(r, small.RingSize, tt.from, tt.to); err != nil {
			t.Fatal(err)
		}
		if got := r.written(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestWriteStopsAtErrors(t *testing.T) {
	s := numbered(t, State{}, vip(t, "192.0.2.1:80/tcp", "10.0.0.11"))
	for _, at := range []string{"backend", "ring", "VIP"} {
		r := newRecorder()
		r.failAt = at
		if err := write(r, small.RingSize, image{}, s.image(allUp(&s))); err == nil || !strings.HasPrefix(r.calls[len(r.calls)-1], at) {
			t.Errorf("%s: %v after %v", at, err, r.calls)
		}
	}
}

// TestFollow marks the state as unfinished while a change needs several writes. If a process dies or fails meanwhile, the next
// one writes everything again. A change of one backend alone needs no mark.
func TestFollow(t *testing.T) {
	v := vip(t, "192.0.2.1:80/tcp", "10.0.0.11", "10.0.0.12")
	v.Check = &Check{Type: "tcp"}
	s := numbered(t, State{}, v)
	l, down, near := allUp(&s), allUp(&s), allUp(&s)
	down.down[s.VIPs[0].Backends[0].ID] = true
	w := near.routes[netip.MustParseAddr("10.0.0.12")]
	w.hop.MTU = 1400
	near.routes[netip.MustParseAddr("10.0.0.12")] = w
	unfinished := s
	unfinished.Unfinished = true
	for _, tt := range []struct {
		what, failAt string
		s            State
		now          live
		want         string
	}{
		{"nothing", "", s, l, ""},
		{"another next hop", "", s, near, "backend 1"},
		{"a failing backend", "", s, down, "unfinished true, backend 0, ring 0, unfinished false"},
		{"a failing ring", "ring", s, down, "unfinished true, backend 0, ring 0"},
		{"unfinished by a process that died", "", unfinished, l, "unfinished false"},
		{"unfinished, and failing again", "ring", unfinished, down, "backend 0, ring 0"},
	} {
		r := newRecorder()
		r.failAt = tt.failAt
		if err := follow(r, small.RingSize, tt.s, s.image(l), tt.now); (err != nil) != (tt.failAt != "") {
			t.Errorf("%s: %v", tt.what, err)
		}
		if got := r.written(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
}

// TestOrder wants load balancers with the same backends in different orders to have the same rings.
func TestOrder(t *testing.T) {
	names := []string{"10.0.0.11", "10.0.0.12", "fd00::11", "10.0.0.14", "10.0.0.9"}
	ring := func(names []string) (backends []netip.Addr) {
		s := numbered(t, State{}, vip(t, "192.0.2.1:80/tcp", names...))
		r := newRecorder()
		if err := write(r, small.RingSize, image{}, s.image(allUp(&s))); err != nil {
			t.Fatal(err)
		}
		for _, o := range r.rings[0] {
			backends = append(backends, r.backends[o.Number()].Addr)
		}
		return backends
	}
	one := ring(names)
	for range names {
		names = append(names[1:], names[0])
		if other := ring(names); !slices.Equal(one, other) {
			t.Errorf("%v\n%v", one, other)
		}
	}
}

// TestObstacles changes a state step by step, and checks why its backend gets no new flows.
func TestObstacles(t *testing.T) {
	s := numbered(t, State{}, vip(t, "192.0.2.1:80/tcp", "10.0.0.11"))
	v := &s.VIPs[0]
	b := &v.Backends[0]
	l := allUp(&s)
	for _, step := range []struct {
		name   string
		change func()
		want   string
	}{
		{"as it is", func() {}, ""},
		{"down without a check", func() { l.down[b.ID] = true }, ""},
		{"down", func() { v.Check = &Check{Type: "tcp"} }, "its checks fail"},
		{"no source", func() { l.down[b.ID] = false; l.routes[b.Addr] = route{hop: l.routes[b.Addr].hop} },
			"there is no source address to send from"},
		{"l2, which needs no source", func() { b.Encap = EncapL2 }, ""},
		{"a configured source", func() { b.Encap = EncapIPIP; s.Source4 = netip.MustParsePrefix("10.200.0.0/16") }, ""},
		{"no next hop", func() { l.routes[b.Addr] = route{} }, "its next hop is not known"},
	} {
		step.change()
		if got := s.obstacle(v, b, l); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
		if got := s.serves(v, l); got != (step.want == "") {
			t.Errorf("%s: the VIP takes new flows: %v", step.name, got)
		}
		if got, want := s.image(l).backends[0].Down, step.name == "down"; got != want {
			t.Errorf("%s: the backend is down for the programs: %v, want %v", step.name, got, want)
		}
	}
}
