// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"culvert/internal/lab"
)

// rules are rules of netfilter, as nft or iptables-legacy makes them.
type rules struct {
	name     string
	add, del [][]string
	says     string // the table and the chain, as the refusal names them
	// show prints the counter of the rule. Its number comes first in a line, or after at.
	show []string
	at   string
}

var ruleSets = []rules{
	{
		name: "nft",
		add: [][]string{
			{"nft", "add table inet edge"},
			{"nft", "add chain inet edge gate { type filter hook forward priority 0; policy accept; }"},
			{"nft", "add rule inet edge gate udp dport 5000 counter accept"},
		},
		del:  [][]string{{"nft", "delete table inet edge"}},
		says: "inet edge gate",
		show: []string{"nft", "list chain inet edge gate"},
		at:   "udp dport 5000 counter packets ",
	},
	{
		name: "iptables-legacy",
		add: [][]string{
			{"iptables-legacy", "-A", "FORWARD", "-p", "udp", "--dport", "5000", "-j", "ACCEPT"},
		},
		del:  [][]string{{"iptables-legacy", "-D", "FORWARD", "-p", "udp", "--dport", "5000", "-j", "ACCEPT"}},
		says: "iptables filter FORWARD",
		show: []string{"iptables-legacy", "-nvxL", "FORWARD"},
	},
}

// all runs commands in the router.
func (r *routed) all(lines [][]string) {
	r.t.Helper()
	for _, line := range lines {
		r.command(line[0], line[1:]...)
	}
}

// TestRouteNetfilterRefused wants culvert not to start where there are rules that forwarded packets would bypass, unless the
// file says bypass_netfilter.
func TestRouteNetfilterRefused(t *testing.T) {
	for _, set := range ruleSets {
		t.Run(set.name, func(t *testing.T) {
			r := newRouted(t, "rnf"+set.name[:1], lab.Options{})
			r.all(set.add)
			const interfaces = "interfaces = ['to-a', 'to-b']\n"
			file := routeFile(t, interfaces+smallRoute)
			s := observe(t, r.lab)
			for _, args := range [][]string{{"run", "-c", file}, {"attach", "-c", file, "to-a", "to-b"}} {
				s.refuse(t, refusal{args: args, status: 1, says: set.says})
			}
			serveRoute(t, r.lab, routeFile(t, interfaces+smallRoute+"bypass_netfilter = true\n"))
			if status := culvert(t, r.lab, "rut", "status"); !strings.Contains(status, set.says) {
				t.Errorf("status does not name the rule that is bypassed:\n%s", status)
			}
			r.begin()
			r.rises("fwd route")
			r.finish("fwd route", "fwd route-fib")
		})
	}
}

// TestRouteNetfilterComes adds a rule while packets flow. From some moment on, all packets pass the rule, until it is deleted.
// No packet is lost.
func TestRouteNetfilterComes(t *testing.T) {
	for _, set := range ruleSets {
		t.Run(set.name, func(t *testing.T) {
			r := newRouted(t, "rnc"+set.name[:1], lab.Options{})
			p := serveRoute(t, r.lab, routeFile(t, "interfaces = ['to-a', 'to-b']\n"+smallRoute))
			r.begin()
			r.rises("fwd route")
			for range 2 {
				r.all(set.add)
				r.rises("pass route-kernel")
				r.still("fwd route")
				if status := routeStatus(t, r.lab); status.IPv4.By != "kernel" || status.IPv6.By != "kernel" {
					t.Errorf("status says %v and %v while the rule is there", status.IPv4, status.IPv6)
				}
				if n := set.counted(r); n == 0 {
					t.Errorf("no packet has passed the rule")
				}
				r.all(set.del)
				r.rises("fwd route")
				r.still("pass route-kernel")
			}
			r.finish("fwd route", "fwd route-fib", "pass route-kernel")
			for word, want := range map[string]int{"have to pass rules": 2, "are gone": 2, "\n": 5} {
				if n := logged(p, word); n != want {
					t.Errorf("%q is logged %d times, want %d", word, n, want)
				}
			}
		})
	}
}

// counted returns how many packets the rule has counted.
func (set rules) counted(r *routed) (n uint64) {
	r.t.Helper()
	out := r.command(set.show[0], set.show[1:]...)
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, set.at); ok {
			if _, err := fmt.Sscan(rest, &n); err == nil {
				return n
			}
		}
	}
	r.t.Errorf("no counter in\n%s", out)
	return 0
}
