// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"culvert/internal/lab"
	"culvert/internal/route/routeview"
)

// floodRoutes writes lines for 'ip -batch' that add or delete 50,000 routes with prefixes of many lengths. They do not cover
// the routes of the streams. It returns the path.
func floodRoutes(t *testing.T, verb string) string {
	t.Helper()
	var b bytes.Buffer
	for i := range 30_000 {
		// From 20.0.0.0 on: /24, /25 and /32 in turn, each in a /24 of its own.
		fmt.Fprintf(&b, "route %s %d.%d.%d.%d/%d via %s\n", verb, 20+i>>16, i>>8&255, i&255, 0, []int{24, 25, 32}[i%3], via4)
	}
	for i := range 20_000 {
		fmt.Fprintf(&b, "-6 route %s 2001:%x:%x::/%d via %s\n", verb, 0x1000+i>>8, i&255<<8, []int{40, 44, 48}[i%3], via6)
	}
	path := filepath.Join(t.TempDir(), verb)
	check(t, os.WriteFile(path, b.Bytes(), 0o644))
	return path
}

// batch runs such lines with ip(8), the IPv6 ones apart, since a line of a batch cannot have -6.
func (r *routed) batch(path string) {
	r.t.Helper()
	r.command("sh", "-c", `grep -v '^-6' "$0" | ip -batch - && sed -n 's/^-6 //p' "$0" | ip -6 -batch -`, path)
}

// TestRouteFlood adds and deletes 50,000 routes while packets take a route that stays.
func TestRouteFlood(t *testing.T) {
	r := newRouted(t, "rflo", lab.Options{})
	p := serveRoute(t, r.lab, routeFile(t, "interfaces = ['to-a', 'to-b']\n[route]\nblocks4 = 32768\nblocks6 = 32768\n"))
	add, del := floodRoutes(t, "add"), floodRoutes(t, "del")
	before := r.prefixes()
	r.begin()
	r.rises("fwd route")
	r.batch(add)
	wait(t, "the mirror to be current", func() bool { return mirrored(t, r.lab) })
	if n := r.prefixes() - before; n != 50_000 {
		t.Errorf("the mirror has %d prefixes more, want 50000", n)
	}
	routeCheck(t, r.lab)
	r.batch(del)
	wait(t, "the mirror to be current", func() bool { return mirrored(t, r.lab) })
	if n := r.prefixes() - before; n != 0 {
		t.Errorf("the mirror has kept %d prefixes", n)
	}
	routeCheck(t, r.lab)
	r.finish("fwd route", "fwd route-fib")
	if n := logged(p, "\n"); n != 1 {
		t.Errorf("%d lines were logged, want one:\n%s", n, p.out.String())
	}
}

// prefixes returns the number of prefixes in the mirror, IPv4 and IPv6 together.
func (r *routed) prefixes() int {
	r.t.Helper()
	var stats routeview.Stats
	check(r.t, json.Unmarshal([]byte(culvert(r.t, r.lab, "rut", "route", "show", "-j", "--on", "culvert")), &stats))
	for _, router := range stats.Routers {
		if router.Here {
			return router.IPv4.Prefixes + router.IPv6.Prefixes
		}
	}
	r.t.Fatal("route show shows no router here")
	return 0
}

// TestRouteMirrorTooSmall has one block for each IP version. The program asks the kernel for what does not fit, and that is
// logged once for each version.
func TestRouteMirrorTooSmall(t *testing.T) {
	r := newRouted(t, "rsma", lab.Options{})
	r.ip("route", "add", "203.0.113.128/25", "via", via4)
	p := serveRoute(t, r.lab, routeFile(t, "interfaces = ['to-a', 'to-b']\n[route]\nblocks4 = 1\nblocks6 = 1\n"))
	r.begin()
	r.load.wait(400)
	for i := range 20 {
		r.ip("route", "add", fmt.Sprintf("192.0.%d.0/28", i), "via", via4)
		r.ip("route", "add", fmt.Sprintf("2001:db8:7:%x::/64", i), "via", via6)
	}
	r.load.wait(400)
	routeCheck(t, r.lab)
	r.finish("fwd route", "fwd route-fib")
	if n := strings.Count(p.out.String(), "larger than the mirror"); n != 2 {
		t.Errorf("%d log lines say that the mirror is too small, want one for each IP version:\n%s", n, p.out.String())
	}
}
