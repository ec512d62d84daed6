// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestLBWithoutRouters announces VIPs to nobody, and to a neighbor that refuses the connection: neither is called announced.
func TestLBWithoutRouters(t *testing.T) {
	b := newLBBed(t)
	const none = "192.0.2.1:80/tcp  active  hash flow  ipip  on failure keep  announce no: no [balance.bgp]\n"
	run := startCulvert(t, "run", "-c", b.file(lbConfig))
	run.waitFor(t, "backend=fd00::11")
	b.lb(0, none, "show")
	run.interrupt(t)

	// 10.0.0.1 is this host's own, where nobody listens.
	lo, err := netlink.LinkByName("lo")
	must(err)
	must(netlink.LinkSetUp(lo))
	run = startCulvert(t, "run", "-c", b.file(lbConfig+`

[balance.bgp]
asn = 65001
router_id = "10.0.0.1"
[[balance.bgp.neighbor]]
address = "10.0.0.1"
asn = 65000
`))
	run.waitFor(t, "no connection: connection refused")
	// The log is a moment ahead of what commands are told.
	b.wait("lb show tells of the session", func() bool {
		_, out, _ := culvert(t, "lb", "show")
		return strings.Contains(out, "announced to 0 of 1\n") && strings.Contains(out, "bgp 10.0.0.1 as 65000  ") &&
			strings.Contains(out, "  no connection: connection refused\n")
	})
	run.mu.Lock()
	log := run.errs.String()
	run.mu.Unlock()
	if strings.Contains(log, "msg=announced") {
		t.Errorf("the log says announced: %s", log)
	}
	if _, out, _ := culvert(t, "doctor"); !strings.Contains(out, "neighbor 10.0.0.1: the session is ") || !strings.Contains(out, "connection refused") {
		t.Errorf("doctor does not tell: %s", out)
	}
	run.interrupt(t)
	b.lb(0, "announce no\n", "show")
}
