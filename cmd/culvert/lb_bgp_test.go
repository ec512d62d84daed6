// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestLBWithoutRouters has no BGP neighbor, and then one that refuses the connection. No VIP is shown as announced.
func TestLBWithoutRouters(t *testing.T) {
	b := newLBBed(t)
	const none = "192.0.2.1:80/tcp  active  hash flow  ipip  on failure keep  not announced: no [lb.bgp]\n"
	run := startCulvert(t, "run", "-c", b.file(lbConfig))
	run.waitFor(t, "backend=fd00::11")
	b.wait("lb show knows that there are no sessions", func() bool {
		_, out, _ := culvert(t, "lb", "show")
		return strings.Contains(out, none)
	})
	run.interrupt(t)

	// 10.0.0.1 is an address of this host, on which no process listens for BGP.
	lo, err := netlink.LinkByName("lo")
	must(err)
	must(netlink.LinkSetUp(lo))
	run = startCulvert(t, "run", "-c", b.file(lbConfig+`

[lb.bgp]
asn = 65001
router_id = "10.0.0.1"
[[lb.bgp.neighbor]]
address = "10.0.0.1"
asn = 65000
`))
	run.waitFor(t, "no connection: connection refused")
	// The log has the event a moment before the commands show it.
	b.wait("lb show tells of the session", func() bool {
		_, out, _ := culvert(t, "lb", "show")
		return strings.Contains(out, "announced to 0 of 1\n") && strings.Contains(out, "bgp 10.0.0.1 as 65000  ") &&
			strings.Contains(out, "  no connection: connection refused\n")
	})
	if _, warnings := b.dump("lb"); warnings != "warning: [lb.bgp] is left out, for only the process has it: there are sessions with 10.0.0.1\n" {
		t.Errorf("a dump warns %q", warnings)
	}
	// Commands in another PID namespace show it too.
	elsewhere := exec.Command("unshare", "--pid", "--fork", "--mount-proc", os.Args[0], "lb", "show")
	elsewhere.Env = append(os.Environ(), asCulvert+"=1")
	if out, err := elsewhere.CombinedOutput(); err != nil || !strings.Contains(string(out), "announced to 0 of 1\n") {
		t.Errorf("in another PID namespace: %v, %s", err, out)
	}
	run.mu.Lock()
	log := run.errs.String()
	run.mu.Unlock()
	if strings.Contains(log, "msg=announced") {
		t.Errorf("the log says announced: %s", log)
	}
	if _, out, _ := culvert(t, "doctor"); !strings.Contains(out, "neighbor 10.0.0.1: the session has been ") || !strings.Contains(out, "connection refused") {
		t.Errorf("doctor does not tell: %s", out)
	}
	var here unix.Stat_t
	must(unix.Stat("/proc/thread-self/ns/net", &here))
	must(os.Remove(fmt.Sprintf("/run/culvert/bgp-%d-culvert.json", here.Ino))) // commands must not guess what they cannot read
	if _, out, _ := culvert(t, "lb", "show"); !strings.Contains(out, "announced: not known\n") || strings.Contains(out, "no [lb.bgp]") {
		t.Errorf("lb show says %s", out)
	}
	if _, out, _ := culvert(t, "doctor"); !strings.Contains(out, "what data plane culvert announces is not known") {
		t.Errorf("doctor does not tell: %s", out)
	}
	if _, warnings := b.dump("lb"); warnings != "warning: [lb.bgp], if the process has it, is left out: what it announces is not known\n" {
		t.Errorf("a dump warns %q", warnings)
	}
	run.interrupt(t)
	b.lb(0, "not announced\n", "show")
	if _, warnings := b.dump("lb"); warnings != "" {
		t.Errorf("a dump warns %q", warnings)
	}
}
