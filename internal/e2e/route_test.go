// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"culvert/internal/lab"
)

// TestRouteRestartUnderLoad ends and kills the IP router's process and starts it again. The data plane forwards all the time,
// by the mirror or by asking the kernel. Each packet arrives once, and the counters go on.
func TestRouteRestartUnderLoad(t *testing.T) {
	r := newRouted(t, "rrs", lab.Options{})
	const metrics = "127.0.0.1:9441"
	file := routeFile(t, "interfaces = ['to-a', 'to-b']\nmetrics = '"+metrics+"'\n"+smallRoute)
	p := serveRoute(t, r.lab, file)
	r.begin()
	r.rises("fwd route")
	wantMetric(t, r.lab, metrics, `culvert_packets_total{interface="to-a",reason="route",stage="route",verdict="fwd"} `)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGINT} {
		p.end(sig)
		if got := p.cmd.ProcessState.ExitCode(); sig != syscall.SIGKILL && got != 0 {
			t.Errorf("exit status %d after %s, want 0", got, sig)
		}
		wait(t, "the mirror to be stale", func() bool { return !mirrored(t, r.lab) })
		r.rises("fwd route-fib")
		r.still("fwd route")
		p = serveRoute(t, r.lab, file)
		if !strings.Contains(p.out.String(), "adopted=true") {
			t.Errorf("the data plane was not adopted: %s", p.out.String())
		}
		r.rises("fwd route")
	}
	routeCheck(t, r.lab)
	// A program that has just taken over does not know all devices yet. It leaves the first packets to the kernel.
	r.finish("fwd route", "fwd route-fib", "pass route-off", "pass route-egress")
	culvert(t, r.lab, "rut", "detach", "to-a", "to-b")
	if left := pins(t, r.lab, "rut"); len(left) > 1 { // the directory itself may stay
		t.Errorf("pinned after detach: %q", left)
	}
}

// wantMetric wants a line that begins with begin among the router's metrics, and its value not to be 0.
func wantMetric(t *testing.T, l *lab.Lab, addr, begin string) {
	t.Helper()
	series, err := scrape(l, "rut", addr, begin)
	check(t, err)
	if !slices.ContainsFunc(series, func(s string) bool { return s != begin+"0" }) {
		t.Errorf("no %s among the metrics, or 0", begin)
	}
}

// TestRouteGet runs 'culvert route get' for every kind of address.
func TestRouteGet(t *testing.T) {
	r := newRouted(t, "rget", lab.Options{})
	r.ip("route", "add", "blackhole", "192.0.2.0/24")
	r.ip("route", "add", "prohibit", "2001:db8:dead::/48")
	r.ip("route", "add", "100.64.0.0/16", "nexthop", "via", "198.18.1.2", "nexthop", "via", via4)
	serveRoute(t, r.lab, routeFile(t, "interfaces = ['to-a', 'to-b']\n"+smallRoute))
	for addr, want := range map[string][2]string{
		"198.18.1.1":        {"to this host, by the mirror (198.18.1.1/32)", "local 198.18.1.1"},
		dst4:                {"dev to-b, by the mirror (203.0.113.0/24)", "203.0.113.0/24 via 198.18.2.2 dev to-b"},
		dst6:                {"dev to-b, by the mirror (2001:db8:113::/48)", "2001:db8:113::/48 via 2001:db8:2::2 dev to-b"},
		"9.9.9.9":           {"no route, to the kernel, by the mirror", "no route"},
		"192.0.2.1":         {"blackhole, dropped, by the mirror (192.0.2.0/24)", "blackhole"},
		"2001:db8:dead::1":  {"by the mirror (2001:db8:dead::/48)", "prohibit"},
		"100.64.1.1":        {"several next hops", "100.64.0.0/16 by several next hops"},
		"2001:db8:1::1":     {"to this host, by the mirror (2001:db8:1::1/128)", "local 2001:db8:1::1"},
		"2001:db8:ffff::99": {"no route, to the kernel", "no route"},
	} {
		out := routeGet(t, r.lab, addr)
		fast, kernel, _ := strings.Cut(out, "\n")
		if !strings.Contains(fast, want[0]) || kernel != "kernel: "+want[1]+"\nagree\n" {
			t.Errorf("route get %s says\n%swant %q", addr, out, want)
		}
	}
	routeCheck(t, r.lab)
}
