// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"culvert/internal/lab"
)

// TestRouteDeviceReplaced deletes an interface that packets leave by, and adds another one of the same name. Packets by other
// interfaces are not lost, packets by that one do not go elsewhere, and a restarted process takes the new interface.
func TestRouteDeviceReplaced(t *testing.T) {
	r := newRouted(t, "rdev", lab.Options{})
	r.newPort("to-c", 9)
	r.ip("route", "add", "100.64.0.0/24", "via", "198.18.9.2")
	file := routeFile(t, "interfaces = ['to-a', 'to-b', 'to-c']\n"+smallRoute)
	p := serveRoute(t, r.lab, file)
	toC := r.stream(src4, "100.64.0.7", 2*numbers)
	r.begin()
	beside := startLoad(t, r.from, toC)
	first := r.arrivesAtC()
	for range 2 {
		r.ip("link", "del", "to-c")
		r.load.wait(400)
		// Without the route, the kernel drops the packets and answers.
		r.newPort("to-c", 9)
		r.ip("route", "add", "100.64.0.0/24", "via", "198.18.9.2")
		if second := r.arrivesAtC(); second == first {
			t.Error("the new interface is the old one")
		}
		r.load.wait(400)
	}
	if !p.running() {
		t.Fatalf("the process has ended: %s", p.out.String())
	}
	routeCheck(t, r.lab)
	p.end(syscall.SIGTERM)
	if n := strings.Count(p.out.String(), "level=ERROR"); n > 1 {
		t.Errorf("%d errors were logged:\n%s", n, p.out.String())
	}
	serveRoute(t, r.lab, file)
	if xdpProgram(t, r.lab, "rut", "to-c") == 0 || xdpProgram(t, r.lab, "rut", "to-c") != xdpProgram(t, r.lab, "rut", "to-a") {
		t.Error("the new interface does not carry the program after a restart")
	}
	if out := routeGet(t, r.lab, "100.64.0.7"); !strings.Contains(out, "dev to-c, by the mirror") {
		t.Errorf("route get says\n%s", out)
	}
	r.arrivesAtC()
	beside.stop()
	routeCheck(t, r.lab)
	r.load.stop()
	settled(t, r.sink)
	for _, s := range r.streams {
		s.wantAll(t, r.sink)
	}
	toC.wantNone(t, r.sink) // the sink is behind to-b
}

// arrivesAtC waits until packets arrive at the far end of to-c, and returns its interface index.
func (r *routed) arrivesAtC() (index int) {
	r.t.Helper()
	received := func() (n uint64) {
		check(r.t, r.lab.Do("b", func() error {
			far, err := netlink.LinkByName("far-to-c")
			if err == nil {
				index, n = far.Attrs().Index, far.Attrs().Statistics.RxPackets
			}
			return err
		}))
		return n
	}
	before := received()
	wait(r.t, "packets behind to-c", func() bool { return received() > before+1000 })
	return index
}

// TestRouteDeviceRenamed renames the interfaces of a router under load. The program stays on them, and a process whose file
// has the new names adopts the data plane.
func TestRouteDeviceRenamed(t *testing.T) {
	r := newRouted(t, "rren", lab.Options{})
	p := serveRoute(t, r.lab, routeFile(t, "interfaces = ['to-a', 'to-b']\n"+smallRoute))
	r.begin()
	r.rises("fwd route")
	r.ip("link", "set", "to-b", "name", "uplink")
	r.load.wait(1000) // longer than the period at which interfaces are checked
	r.rises("fwd route")
	routeCheck(t, r.lab)
	if out := routeGet(t, r.lab, dst4); !strings.Contains(out, "dev uplink, by the mirror") {
		t.Errorf("route get says\n%s", out)
	}
	if !p.running() {
		t.Fatalf("the process has ended: %s", p.out.String())
	}
	p.end(syscall.SIGTERM)
	if n := strings.Count(p.out.String(), "level=ERROR"); n > 1 {
		t.Errorf("%d errors were logged:\n%s", n, p.out.String())
	}
	serveRoute(t, r.lab, routeFile(t, "interfaces = ['to-a', 'uplink']\n"+smallRoute))
	r.rises("fwd route")
	if xdpProgram(t, r.lab, "rut", "uplink") != xdpProgram(t, r.lab, "rut", "to-a") {
		t.Error("the renamed interface does not carry the new program")
	}
	routeCheck(t, r.lab)
	// The kernel forwards until the new name is known.
	r.finish("fwd route", "fwd route-fib", "pass route-off", "pass route-egress")
	culvert(t, r.lab, "rut", "detach", "to-a", "uplink")
}
