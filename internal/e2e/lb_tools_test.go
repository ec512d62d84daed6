// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"culvert/internal/show/status"
)

// testTools runs commands that show a balancer's state while it has connections.
func (b *balanced) testTools() {
	for _, ns := range balancers {
		// Each session announces only the addresses of its own family.
		b.wait("lb show of "+ns+" says that each address has been announced over a session", func() bool {
			out := culvert(b.T, b.lab, ns, "lb", "show")
			return strings.Count(out, "  announced to 1 of 1\n") == 2 && strings.Count(out, "  established ") == 2
		})
	}
	b.testExplained()
	for _, ns := range balancers {
		n, err := b.lab.Namespace(ns)
		check(b.T, err)
		out := culvert(b.T, b.lab, ns, "doctor")
		if !strings.Contains(out, " 0 FAIL") {
			b.Errorf("doctor in %s says\n%s", ns, out)
		}
		var report status.Report
		check(b.T, json.Unmarshal([]byte(culvert(b.T, b.lab, ns, "status", "-j")), &report))
		i := slices.IndexFunc(report.Routers, func(r status.Router) bool { return r.Here })
		if i < 0 || report.Routers[i].NetNSName != n.NetNS || len(report.Routers[i].Interfaces) != 1 {
			b.Errorf("status in %s says %+v", ns, report.Routers)
		}
		shown := culvert(b.T, b.lab, ns, "lb", "show")
		for _, want := range []string{b.webVIPs()[0].String(), b.webVIPs()[1].String(), backendAddrs["b1"].String(), backendAddrs["b4"].String()} {
			if !strings.Contains(shown, want) {
				b.Errorf("lb show in %s does not say %s:\n%s", ns, want, shown)
			}
		}
	}
}

// testExplained wants 'culvert lb explain' to name on both balancers the backend that has answered, and on one of them to say
// that the flow is in its table.
func (b *balanced) testExplained() {
	for _, vip := range b.webVIPs() {
		c, err := dialWeb(b.lab, vip)
		check(b.T, err)
		defer c.Close()
		name, err := c.name()
		check(b.T, err)
		client := c.client()
		for _, ns := range balancers {
			answer, out := b.explain(ns, vip, client)
			if answer.Ring.Backend != backendAddrs[name] || answer.Backend.Backend != backendAddrs[name] {
				b.Errorf("%s has answered %s, on %s that is explained by\n%s", name, client, ns, out)
			}
		}
		if n := b.tables(vip, client); n != 1 {
			b.Errorf("%d balancers have the flow of %s in their tables, want one", n, client)
		}
	}
}

// explained is the JSON of 'culvert lb explain'.
type explained struct {
	By            string
	Ring, Backend struct{ Backend netip.Addr }
}

// explain runs 'culvert lb explain' for a flow on a balancer.
func (b *balanced) explain(ns string, vip, client netip.AddrPort) (answer explained, out string) {
	b.Helper()
	out = culvert(b.T, b.lab, ns, "lb", "explain", "-j", fmt.Sprint(vip)+"/tcp", client.String())
	check(b.T, json.Unmarshal([]byte(out), &answer))
	return answer, out
}

// tables returns how many balancers have a flow in their tables.
func (b *balanced) tables(vip, client netip.AddrPort) (n int) {
	b.Helper()
	for _, ns := range balancers {
		if answer, _ := b.explain(ns, vip, client); answer.By == "table" {
			n++
		}
	}
	return n
}
