// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/host/netfilter"
	"culvert/internal/route/routeplane"
	"culvert/internal/route/routeview"
)

func TestRouteText(t *testing.T) {
	mirror := routeview.Condition{By: routeview.Mirror}
	for _, tt := range []struct {
		r    Route
		want string
	}{
		{Route{State: routeview.State{IPv4: mirror, IPv6: mirror, Memory: 155e6}}, "  route  IPv4 and IPv6 by the mirror  memory 155MB"},
		{Route{State: routeview.State{IPv4: mirror, IPv6: routeview.Condition{By: routeview.Stale, Why: "because", StaleSeconds: 61}},
			Netfilter: []netfilter.Finding{{Backend: "nft", Family: "ip", Table: "f", Chain: "c", Rules: 1}}, NetfilterProblem: "no"},
			"  route  IPv4 by the mirror  IPv6 asks the kernel: because (for 1m01s)  memory 0B\n" +
				"  netfilter  forwarded packets go past nft ip f c (1 rule)\n  netfilter  cannot be read: no"},
	} {
		if got := strings.Join(tt.r.lines(), "\n"); got != tt.want {
			t.Errorf("got\n%s\nwant\n%s", got, tt.want)
		}
	}
}

// TestIPRouterAlone shows a data plane without a SCION router, which has no links and no keys.
func TestIPRouterAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	runtime.LockOSThread() // never unlocked, so that the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "st0"}, PeerName: "st1"}); err != nil {
		t.Fatal(err)
	}
	o := datapath.Options{Name: "status-route-test", Interfaces: []string{"st0"}, Parts: []datapath.Part{routeplane.NewPart(routeplane.Options{Blocks4: 1, Blocks6: 1})}}
	inst, err := datapath.Attach(o)
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Close()
	defer func() {
		if err := inst.DetachAll(); err != nil {
			t.Error(err)
		}
	}()
	show := func(asJSON bool) string {
		t.Helper()
		var b bytes.Buffer
		if err := Show(&b, Options{Router: o.Name, JSON: asJSON}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	text := show(false)
	if !strings.HasPrefix(text, "router status-route-test  netns ") ||
		!strings.Contains(text, "\n  route  IPv4 and IPv6 ask the kernel: the mirror is not current: the process is still reading the tables, or is behind (see its log)  memory ") ||
		!strings.Contains(text, "\n  interface st0  DOWN: ip link set dev st0 up\n") || strings.Contains(text, "key") || strings.Contains(text, "\n  link") ||
		strings.Contains(text, "netfilter") {
		t.Errorf("got\n%s", text)
	}
	// The mirror of IPv4 is current for longer than the test takes.
	plane, err := routeplane.Open(inst)
	if err != nil {
		t.Fatal(err)
	}
	defer plane.Close()
	if err := plane.SetCurrent(1<<62, 0); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("nft", "add table ip f; add chain ip f c { type filter hook forward priority 0; policy drop; }").CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	text = show(false)
	if !strings.Contains(text, "\n  route  IPv4 by the mirror  IPv6 asks the kernel: the mirror is not current: the process is still reading the tables, or is behind (see its log)  memory ") ||
		!strings.Contains(text, "\n  netfilter  forwarded packets go past nft ip f c (no rules, policy drop)\n") {
		t.Errorf("got\n%s", text)
	}
	var r struct {
		Routers []struct {
			Links, Keys []any
			Route       map[string]any
		}
	}
	if err := json.Unmarshal([]byte(show(true)), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Routers) != 1 || r.Routers[0].Links == nil || r.Routers[0].Keys == nil {
		t.Fatalf("got %+v", r)
	}
	for _, field := range []string{"ipv4", "ipv6", "memory_bytes", "netfilter"} {
		if r.Routers[0].Route[field] == nil {
			t.Errorf("no %s in %v", field, r.Routers[0].Route)
		}
	}
	// 'culvert watch' reads the same data plane.
	s, err := WatchOptions{Router: o.Name, Interval: time.Second}.look()
	if err != nil || len(s.routers) != 1 || len(s.routers[0].Interfaces) != 1 {
		t.Errorf("%v: %+v", err, s.routers)
	}
}
