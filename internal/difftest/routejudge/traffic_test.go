// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"culvert/internal/datapath"
	"culvert/internal/route"
	"culvert/internal/route/routeplane"
)

// plane is the data plane as the control plane sees it.
type plane = route.Plane

// smallMirror sizes a mirror for small tables.
var smallMirror = routeplane.Options{Blocks4: 512, Blocks6: 2048}

const streamRoutes = "route add 20.0.0.0/8 via 10.1.1.2 dev p1\nroute add 21.0.0.0/8 via 10.1.2.3 dev p2\n" +
	"route add 2001:db8::/33 via fd00:1:1::2 dev p1\nroute add 2001:db8:8000::/33 via fe80::2:3 dev p2\n"

var streamDsts = []string{"20.1.2.3", "21.255.0.1", "10.1.1.7", "2001:db8::7", "2001:db8:ffff::1", "fd00:1:2::9"}

// run runs a control plane in the calling thread's network namespace until ctx ends.
func (c *culvert) run(ctx context.Context, p plane, status *route.Status) error {
	err := route.Run(ctx, route.Options{Plane: p, Status: status})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func current(s *route.Status) bool {
	now := s.Load()
	return now.IPv4.Current && now.IPv6.Current
}

// TestKilledUnderLoad kills or stops the control plane under load and starts it again. Meanwhile the program asks the kernel, and
// no packet is lost.
func TestKilledUnderLoad(t *testing.T) {
	pinToCPU(t)
	w := newTwin(t)
	w.ip(streamRoutes)
	c := attach(w, smallMirror)
	s := newStream(w, 6, streamDsts...)
	by := func(name string) uint64 { return c.reasons()["fwd "+name] }
	s.through(func() error {
		for round := range 2 {
			m := &killablePlane{plane: c.plane}
			ctx, cancel := context.WithCancel(context.Background())
			var status route.Status
			done := make(chan error, 1)
			go func() { done <- inNamespace(w, func() error { return c.run(ctx, m, &status) }) }()
			before := by("route")
			err := waitFor(t, "forwarding by the mirror", func() bool { return by("route") > before+100 })
			m.killed.Store(round == 0)
			cancel()
			if err := errors.Join(err, <-done); err != nil {
				return err
			}
			before = by("route-fib")
			if err := waitFor(t, "asking the kernel", func() bool { return by("route-fib") > before+100 }); err != nil {
				return err
			}
			before = by("route")
			time.Sleep(stale)
			after := by("route")
			if round == 1 && after != before {
				return fmt.Errorf("%d packets were forwarded by the mirror of a control plane that has ended", after-before)
			}
		}
		return nil
	})
	s.report()
}

// TestRestartUnderLoad starts the process again, which swaps the program under load.
func TestRestartUnderLoad(t *testing.T) {
	pinToCPU(t)
	w := newTwin(t)
	w.ip(streamRoutes)
	w.listen()
	names := []string{portName(0), portName(1), portName(2)}
	s := newStream(w, 7, streamDsts...)
	var last *datapath.Instance
	t.Cleanup(func() {
		if last != nil {
			_ = last.DetachAll()
			last.Close()
		}
	})
	s.through(func() error {
		for range 3 {
			if last != nil {
				last.Close() // as when a process ends
			}
			o := smallMirror
			inst, err := datapath.Attach(datapath.Options{Name: "restarted", Interfaces: names, Parts: []datapath.Part{routeplane.NewPart(o)}})
			if err != nil {
				return err
			}
			last = inst
			plane, err := routeplane.Open(inst)
			if err != nil {
				return err
			}
			defer plane.Close()
			c := &culvert{t: t, twin: w, inst: inst, plane: plane}
			ctx, cancel := context.WithCancel(context.Background())
			var status route.Status
			done := make(chan error, 1)
			m := &killablePlane{plane: plane}
			go func() { done <- inNamespace(w, func() error { return c.run(ctx, m, &status) }) }()
			before := c.reasons()["fwd route"]
			err = waitFor(t, "forwarding by the mirror", func() bool { return c.reasons()["fwd route"] > before+100 })
			m.killed.Store(true)
			cancel()
			if err := errors.Join(err, <-done); err != nil {
				return err
			}
		}
		return nil
	})
	s.report()
}

// gateways records which gateways a route had at what times.
type gateways struct {
	sync.Mutex
	began, ended map[[6]byte][]time.Time
}

// valid tells whether the route had a gateway at some time between sent and received. It allows for the delay with which the fast
// path follows the kernel.
func (g *gateways) valid(m [6]byte, sent, received time.Time) bool {
	g.Lock()
	defer g.Unlock()
	for i, began := range g.began[m] {
		if began.After(received) {
			continue
		}
		if i >= len(g.ended[m]) || g.ended[m][i].Add(stale).After(sent) {
			return true
		}
	}
	return false
}

// TestChurnUnderLoad changes routes under load. Each packet has to go to a gateway that the route had when the packet came, or
// shortly before. None may be lost.
func TestChurnUnderLoad(t *testing.T) {
	pinToCPU(t)
	w := newTwin(t)
	w.ip(streamRoutes)
	c := attach(w, smallMirror)
	c.startControlPlane(route.Options{})
	ways := []*gateways{{}, {}}
	dsts := []string{"20.1.2.3", "2001:db8::7"}
	for _, g := range ways {
		g.began, g.ended = make(map[[6]byte][]time.Time), make(map[[6]byte][]time.Time)
		g.began[hostMAC(1, 2)] = []time.Time{time.Now()}
	}
	s := newStream(w, 8, dsts...)
	wrong, taken := 0, make(map[[6]byte]bool)
	s.arrived = func(p *packet, o output, sent, received time.Time) {
		family := 0
		if p.dst.Is6() {
			family = 1
		}
		m := [6]byte(o.frame)
		taken[m] = true
		if !ways[family].valid(m, sent, received) {
			if wrong++; wrong < 4 {
				t.Errorf("%v went to %x at %v", p.dst, m, received)
			}
		}
	}
	before := c.reasons()
	s.through(func() error { return moveRoutes(w, ways, dsts, 150) })
	s.report()
	after := c.reasons()
	mirrored := after["fwd route"] - before["fwd route"]
	t.Logf("%d gateways, %d packets by the mirror, %v", len(taken), mirrored, after)
	if wrong > 0 {
		t.Errorf("%d of %d packets went where no route had led for %v", wrong, s.sent, stale)
	}
	if len(taken) < 8 || mirrored == 0 {
		t.Errorf("%d gateways were taken and %d packets went by the mirror: the test has tested nothing", len(taken), mirrored)
	}
}

// moveRoutes changes the gateways of two routes, one of each IP version, again and again.
func moveRoutes(w *twin, ways []*gateways, dsts []string, times int) error {
	h, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer h.Close()
	prefixes := []string{"20.0.0.0/8", "2001:db8::/33"}
	at := hostMAC(1, 2)
	for n := range times {
		port, host := 1+n%2, firstHost+n%7
		next := hostMAC(port, host)
		for family, p := range prefixes {
			_, dst, err := net.ParseCIDR(p)
			if err != nil {
				return err
			}
			gw := host4(port, host)
			if family == 1 {
				gw = host6(port, host)
			}
			r := &netlink.Route{Dst: dst, Gw: gw.AsSlice(), LinkIndex: w.index[port]}
			if family == 1 {
				r.Priority = 1024
			}
			g := ways[family]
			g.Lock()
			g.began[next] = append(g.began[next], time.Now())
			g.Unlock()
			if err := h.RouteReplace(r); err != nil {
				return fmt.Errorf("%s via %v: %w", p, gw, err)
			}
			g.Lock()
			g.ended[at] = append(g.ended[at], time.Now())
			g.Unlock()
		}
		at = next
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// TestOverrunUnderLoad makes the kernel drop notifications. The mirror must not be used until all tables were read again.
func TestOverrunUnderLoad(t *testing.T) {
	pinToCPU(t)
	kernel, fast := newTwin(t), newTwin(t)
	g := newGenerator(9)
	g.table.simple = true
	lines := g.nexthopObjects() + g.fill(200)
	for _, w := range []*twin{kernel, fast} {
		w.enter()
		w.ip(lines + "route add 31.0.0.0/8 via 10.1.1.2 dev p1\nroute add 2001:db9::/32 via fd00:1:2::3 dev p2\n")
	}
	v := attach(fast, routeplane.Options{Blocks4: 4096, Blocks6: 16384})
	var status route.Status
	v.startControlPlane(route.Options{ReceiveBuffer: 1, Status: &status})
	s := newStream(fast, 10, "31.1.2.3", "2001:db9::7")
	more := g.fill(1500)
	s.through(func() error {
		fast.ip(more)
		return waitFor(t, "the mirror being right again", func() bool { return current(&status) })
	})
	s.report()
	if n := status.Load().Overruns; n == 0 {
		t.Error("no notification was lost: the test has tested nothing")
	}
	kernel.enter()
	kernel.ip(more)
	fast.enter()
	time.Sleep(stale)
	c := newJudge(t, kernel, g)
	c.name, c.explain, c.again = "after an overrun", v.explain, v.fate
	c.all(20, v.fate)
	c.report()
}
