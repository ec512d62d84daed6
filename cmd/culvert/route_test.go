// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/route/lpm"
	"culvert/internal/route/routeplane"
)

// TestRouteCommands runs the commands of 'culvert route' as processes, for an IP router that the test's process serves.
func TestRouteCommands(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	runtime.LockOSThread() // never unlocked, so that the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	for name, value := range map[string]string{
		"ipv4/conf/all/forwarding": "1", "ipv6/conf/all/forwarding": "1", "ipv4/conf/all/rp_filter": "0",
		"ipv4/conf/default/rp_filter": "0",
	} {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	expect := func(status int, want string, args ...string) (stdout string) {
		t.Helper()
		got, stdout, stderr := culvert(t, args...)
		if got != status || !strings.Contains(stdout+stderr, want) || strings.Count(stderr, "\n") > 1 {
			t.Errorf("culvert %v: status %d, stdout %q, stderr %q; want status %d and %q", args, got, stdout, stderr, status, want)
		}
		return stdout
	}
	expect(1, "no IP router in this network namespace", "route", "get", "192.0.2.1")
	expect(1, "no IP router in this network namespace", "route", "check")

	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "rt0"}, PeerName: "rt1"}); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"link set rt0 up", "link set rt1 up", "addr add 10.1.0.1/24 dev rt0",
		"neigh replace 10.1.0.9 lladdr 02:00:00:00:00:09 dev rt0 nud permanent", "route add 192.0.2.0/24 via 10.1.0.9",
	} {
		run(strings.Fields(args)...)
	}
	dev, err := net.InterfaceByName("rt0")
	if err != nil {
		t.Fatal(err)
	}
	inst, err := datapath.Attach(datapath.Options{
		Name: "cmd-route-test", Interfaces: []string{"rt0"}, Parts: []datapath.Part{routeplane.NewPart(routeplane.Options{Blocks4: 16, Blocks6: 16})},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Close()
	defer func() {
		if err := inst.DetachAll(); err != nil {
			t.Error(err)
		}
	}()
	plane, err := routeplane.Open(inst)
	must(err)
	defer plane.Close()
	must(plane.SetDev(dev.Index, routeplane.Dev{
		Port: dev.Index, MAC: [6]byte(dev.HardwareAddr), Forward4: true, Forward6: true, Xmit: true,
	}))
	const hop = routeplane.HopFirst
	must(plane.SetHop(hop, routeplane.Hop{
		Action: routeplane.Forward, Dev: dev.Index, Port: dev.Index, MTU: 1500, SrcMAC: [6]byte(dev.HardwareAddr),
		DstMAC: [6]byte{2, 0, 0, 0, 0, 9},
	}))
	root, blocks := plane.Table4()
	table := lpm.New(root, blocks, 32)
	table.Insert(netip.MustParsePrefix("192.0.2.0/24"), hop)

	expect(0, "asks the kernel: the mirror is not current: the process is still reading the tables, or is behind (see its log)\n", "route", "get", "192.0.2.7")
	expect(1, "the mirror is not current: see 'culvert route show'", "route", "check", "--samples", "10")
	must(plane.SetCurrent(1<<62, 1<<62))
	expect(0, "192.0.2.7 from 10.1.0.2 iif rt0: forward to 10.1.0.9 02:00:00:00:00:09 dev rt0, by the mirror (192.0.2.0/24)\n"+
		"kernel: 192.0.2.0/24 via 10.1.0.9 dev rt0\nagree\n", "route", "get", "192.0.2.7")
	expect(0, "no differences\n", "route", "check", "--on", "cmd-route-test", "--samples", "100")

	table.Insert(netip.MustParsePrefix("192.0.2.128/25"), routeplane.HopBlackhole)
	expect(1, "culvert: to 192.0.2.200: the fast path and the kernel differ\n", "route", "get", "192.0.2.200", "--on", "cmd-route-test")
	expect(1, "culvert: router cmd-route-test: the fast path and the kernel differ at 2 addresses\n", "route", "check", "--samples", "0")
	var stats struct {
		Routers []struct {
			Router string
			IPv4   struct {
				Prefixes int
				Blocks   int `json:"blocks_used"`
			}
		}
	}
	if err := json.Unmarshal([]byte(expect(0, "", "route", "show", "-j", "--on", "cmd-route-test")), &stats); err != nil {
		t.Fatal(err)
	}
	if len(stats.Routers) != 1 || stats.Routers[0].IPv4.Prefixes != 2 || stats.Routers[0].IPv4.Blocks != 1 {
		t.Errorf("got %+v", stats)
	}
	expect(0, "\n  route  IPv4 and IPv6 by the mirror  memory ", "status", "--on", "cmd-route-test")
	expect(1, "data plane cmd-route-test is no SCION router", "key", "list", "--on", "cmd-route-test")
	expect(0, "detached from rt0\n", "detach", "rt0")
}
