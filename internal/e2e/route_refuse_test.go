// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"culvert/internal/lab"
)

// TestRouteBadInput has files and commands that must be refused. Each gives one line and changes nothing.
func TestRouteBadInput(t *testing.T) {
	l := up(t, "veth", lab.Options{Name: "rbad", StaticNeighbors: true, Forward: true})
	as, err := l.AS("rut")
	check(t, err)
	s := observe(t, l)
	const ports = "interfaces = ['to-a', 'to-b']\n"
	both := routeFile(t, ports+smallRoute+"[scion]\nconfig = '"+as.RouterConfig+"'\n")
	good := routeFile(t, ports+smallRoute)
	for name, bad := range map[string]struct{ text, says string }{
		"unknown interface":          {"missing = 'refuse'\ninterfaces = ['to-a', 'nix']\n" + smallRoute, "interface nix does not exist"},
		"no interfaces":              {smallRoute, "interfaces is missing"},
		"empty interfaces":           {"interfaces = []\n" + smallRoute, "interfaces is missing"},
		"an empty name":              {"interfaces = ['to-a', '']\n" + smallRoute, "interfaces has an empty name"},
		"loopback":                   {"interfaces = ['lo']\n" + smallRoute, "lo"},
		"a slash in the name":        {ports + "name = 'a/b'\n" + smallRoute, "2:8: name"},
		"a name of a blank":          {ports + "name = ' '\n" + smallRoute, "2:8: name"},
		"a tab in the name":          {ports + "name = \"a\\tb\"\n" + smallRoute, "2:8: name"},
		"metrics without a port":     {ports + "metrics = '127.0.0.1'\n" + smallRoute, "2:11: metrics"},
		"metrics of another host":    {ports + "metrics = '192.0.2.77:9441'\n" + smallRoute, "192.0.2.77:9441"},
		"no blocks":                  {ports + "[route]\nblocks4 = 0\n", "3:11: route.blocks4"},
		"too many blocks":            {ports + "[route]\nblocks6 = 99999999\n", "3:11: route.blocks6"},
		"mirror that is no boolean":  {ports + "[route]\nmirror = 'yes'\n", "3:10: route.mirror: want true or false"},
		"key that there is not":      {ports + "[route]\nbypass = true\n", `"route.bypass"`},
		"the same, but for no table": {ports, "no stage is on"},
	} {
		t.Run(name, func(t *testing.T) {
			s.refuse(t, refusal{args: []string{"run", "-c", routeFile(t, bad.text)}, status: 1, says: bad.says})
		})
	}
	for name, r := range map[string]refusal{
		"attach both stages":     {args: []string{"attach", "-c", both, "to-a", "to-b"}, status: 1, says: "[scion] and [route]"},
		"attach to nothing":      {args: []string{"attach", "-c", good, "to-a", "nix"}, status: 1, says: "interface nix does not exist"},
		"get without router":     {args: []string{"route", "get", "192.0.2.1"}, status: 1, says: "no IP router"},
		"check without router":   {args: []string{"route", "check"}, status: 1, says: "no IP router"},
		"get of no address":      {args: []string{"route", "get", "192.0.2"}, status: 2, says: `"192.0.2" is no address`},
		"get of a prefix":        {args: []string{"route", "get", "192.0.2.0/24"}, status: 2, says: "without a prefix length"},
		"get of two families":    {args: []string{"route", "get", "192.0.2.1", "--from", "::1"}, status: 1, says: "no IP router"},
		"stats of another":       {args: []string{"route", "show", "--on", "nix"}, status: 1, says: "nix"},
		"detach what is not on":  {args: []string{"detach", "to-a"}, status: 1, says: "not attached to to-a"},
		"check of minus samples": {args: []string{"route", "check", "--samples", "-1"}, status: 2, says: "--samples"},
	} {
		t.Run(name, func(t *testing.T) { s.refuse(t, r) })
	}
}

// TestRouteSecondRun starts culvert again on interfaces of a router that a process serves.
func TestRouteSecondRun(t *testing.T) {
	r := newRouted(t, "rsec", lab.Options{})
	const ports = "interfaces = ['to-a', 'to-b']\n"
	p := serveRoute(t, r.lab, routeFile(t, ports+"metrics = '127.0.0.1:9441'\n"+smallRoute))
	r.begin()
	s := observe(t, r.lab)
	same, other := routeFile(t, ports+smallRoute), routeFile(t, ports+"name = 'other'\n"+smallRoute)
	for name, x := range map[string]refusal{
		"the same":              {args: []string{"run", "-c", same}, says: "culvert is served by process "},
		"the same, and metrics": {args: []string{"run", "-c", routeFile(t, ports+"metrics = '127.0.0.1:9441'\n"+smallRoute)}, says: "culvert is served by process "},
		"without a process":     {args: []string{"attach", "-c", same, "to-a", "to-b"}, says: "culvert is served by process "},
		"another name":          {args: []string{"run", "-c", other}, says: "to-a"},
	} {
		x.status = 1
		t.Run(name, func(t *testing.T) { s.refuse(t, x) })
	}
	if !p.running() {
		t.Fatal("the first process has ended")
	}
	r.finish("fwd route", "fwd route-fib")
}

// TestRouteAttached has an IP router without a process, which asks the kernel about each packet. A process adopts it, and when
// that has ended, 'culvert attach' does. Nothing of it is left after the interfaces were detached.
func TestRouteAttached(t *testing.T) {
	r := newRouted(t, "ratt", lab.Options{})
	file := routeFile(t, "interfaces = ['to-a', 'to-b']\n"+smallRoute)
	attach := []string{"attach", "-c", file, "to-a", "to-b"}
	if out := culvert(t, r.lab, "rut", attach...); out != "culvert attached to to-a, to-b\n" {
		t.Errorf("attach says %q", out)
	}
	r.begin()
	r.rises("fwd route-fib")
	r.still("fwd route")
	p := serveRoute(t, r.lab, file)
	r.rises("fwd route")
	p.end(syscall.SIGTERM)
	culvert(t, r.lab, "rut", attach...)
	r.rises("fwd route-fib")
	r.still("fwd route")
	r.finish("fwd route", "fwd route-fib", "pass route-off", "pass route-egress")
	for _, iface := range []string{"to-a", "to-b"} {
		if out := culvert(t, r.lab, "rut", "detach", iface); out != "detached from "+iface+"\n" {
			t.Errorf("detach says %q", out)
		}
		if xdpProgram(t, r.lab, "rut", iface) != 0 {
			t.Errorf("%s still carries a program", iface)
		}
	}
	for _, pin := range pins(t, r.lab, "rut") {
		if strings.Contains(pin, "culvert") {
			t.Errorf("%s is still pinned", filepath.Join(bpffs, pin))
		}
	}
}

// TestRouteDetachServed detaches the interfaces of a process, which ends then.
func TestRouteDetachServed(t *testing.T) {
	r := newRouted(t, "rdet", lab.Options{})
	file := routeFile(t, "interfaces = ['to-a', 'to-b']\n"+smallRoute)
	p := serveRoute(t, r.lab, file)
	out := culvert(t, r.lab, "rut", "detach", "to-a", "to-b")
	const want = "detached from to-a\ndetached from to-b\nrouter culvert is still served by a process, which ends now (detached = \"exit\")\n"
	if out != want {
		t.Errorf("detach says %q, want %q", out, want)
	}
	wait(t, "the process to end", func() bool { return !p.running() })
	if log := p.out.String(); strings.Count(log, "level=WARN") < 1 || !strings.Contains(log, "the process ends") || strings.Contains(log, "level=ERROR") {
		t.Errorf("the process has logged\n%s", log)
	}
	serveRoute(t, r.lab, file)
	routeCheck(t, r.lab)
}
