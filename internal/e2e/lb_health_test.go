// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"culvert/internal/lab"
	"culvert/internal/lb/lbplane"
)

// testHealth has backends fail in three ways under load. Each leaves the rings and comes back. Connections to other backends
// go on.
func (b *balanced) testHealth() {
	w := b.load()
	b.Log("the web server of b1 is killed")
	w.spare("b1")
	w.refusals.Store(true)
	check(b.T, b.lab.Stop(lab.WebProcess("b1"), syscall.SIGKILL))
	b.await(lbplane.Down, "b1")
	w.refusals.Store(false)
	b.wantWithout("b1")
	w.moves()

	b.Log("b2 answers its checks with 503")
	b.setHealth(503, "b2")
	b.await(lbplane.Down, "b2")
	b.wantWithout("b1", "b2")
	w.moves() // connections to b2 go on too

	b.Log("the link to b3 is down")
	w.spare("b3")
	w.refusals.Store(true)
	b.setLink("to-b3", false)
	b.await(lbplane.Down, "b3")
	w.refusals.Store(false)
	b.wantWithout("b1", "b2", "b3")
	w.moves()

	b.Log("all come back")
	check(b.T, b.lab.StartWebServer("b1"))
	b.setHealth(200, "b2")
	b.setLink("to-b3", true)
	b.normal()
	b.wantBack("b1", "b2", "b3")
	w.moves()
	w.end()
}

// testNobody has all backends fail. The VIPs' addresses are withdrawn until a backend is up.
func (b *balanced) testNobody() {
	b.setHealth(503, providers...)
	b.await(lbplane.Down, providers...)
	b.awaitNextHops(0, 0)
	b.wantInBIRD(0)
	b.setHealth(200, "b3")
	b.awaitNextHops(2, 2)
	b.wantInBIRD(2)
	if names := b.fresh(4); names["b3"] != 8 {
		b.Errorf("%v have answered, want b3 alone", names)
	}
	b.setHealth(200, providers...)
	b.normal()
	b.wantBack(providers...)
}

// setHealth has backends answer their checks with a status.
func (b *balanced) setHealth(status int, backends ...string) {
	b.Helper()
	for _, name := range backends {
		_, err := b.lab.Run(b.Context(), name, "curl", "-sSf", "-X", "PUT", "-d", fmt.Sprint(status), "http://127.0.0.1/health")
		check(b.T, err)
	}
}

// setLink sets an interface of router up or down. Its addresses stay.
func (b *balanced) setLink(name string, up bool) {
	b.Helper()
	check(b.T, b.lab.Do("router", func() error {
		return os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", name, "keep_addr_on_down"), []byte("1"), 0o644)
	}))
	b.ip("router", "link", "set", name, map[bool]string{true: "up", false: "down"}[up])
}

// wantInBIRD wants BIRD to have the given number of next hops to each VIP.
func (b *balanced) wantInBIRD(ways int) {
	b.Helper()
	for _, vip := range b.webVIPs() {
		cmd, err := b.lab.Command(b.Context(), "router", "birdc", "-s", filepath.Join(b.lab.Dir, "router.ctl"), "show", "route", "for", vip.Addr().String())
		check(b.T, err)
		out, err := cmd.CombinedOutput()
		if got := strings.Count(string(out), "via "); got != ways || err != nil && ways > 0 {
			b.Errorf("BIRD has %d next hops to %s, want %d: %v\n%s", got, vip.Addr(), ways, err, out)
		}
	}
}
