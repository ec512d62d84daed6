// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// TestDoctorUnserved has doctor say that a VIP has no backend, until it has one, and not of one that was drained by hand: it says
// that this one is drained, as status does, until it is not.
func TestDoctorUnserved(t *testing.T) {
	b := newLBBed(t)
	const head = "interfaces = ['lb0']\n[lb]\n[[lb.vip]]\naddress = '192.0.2.1:80'\nprotocol = 'tcp'\n"
	file := b.file(head + "[[lb.vip.backend]]\naddress = '203.0.113.9'\n")
	runAttached(t, file)
	const unserved = "no backend takes new flows of VIP 192.0.2.1:80/tcp"
	says := func(want bool) {
		t.Helper()
		out := ""
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if _, out, _ = culvert(t, "doctor"); strings.Contains(out, unserved) == want {
				return
			}
		}
		t.Fatalf("doctor says\n%s", out)
	}
	says(true)
	rewrite(t, file, head+"[[lb.vip.backend]]\naddress = '10.0.0.11'\n")
	b.expect(0, "is in force", "reload")
	says(false)
	rewrite(t, file, head+"[[lb.vip.backend]]\naddress = '203.0.113.9'\n")
	b.expect(0, "is in force", "reload")
	says(true)
	b.lb(0, "", "drain 192.0.2.1:80/tcp")
	says(false)
	drained := []string{"lb-drained", "VIP 192.0.2.1:80/tcp is drained: it is not announced", "culvert lb undrain --on culvert 192.0.2.1:80/tcp"}
	b.says(true, "doctor", drained...)
	b.says(true, "status", "lb  1 VIP (1 drained)", "DRAINED: 192.0.2.1:80/tcp: not announced because of it: culvert lb undrain 192.0.2.1:80/tcp")
	b.lb(0, "", "undrain 192.0.2.1:80/tcp")
	b.says(false, "doctor", drained...)
	b.says(false, "status", "drained", "DRAINED")
}

// says waits until the output of a command line has all texts, or none of them.
func (b *lbBed) says(want bool, line string, texts ...string) {
	b.t.Helper()
	out := ""
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		_, out, _ = culvert(b.t, strings.Fields(line)...)
		if !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(out, text) != want }) {
			return
		}
	}
	b.t.Fatalf("%s says\n%s", line, out)
}

// TestNoRoom fills the flow table and the mirror of the routing table. Status, doctor and the log say so, until a reload brings larger
// tables into force.
func TestNoRoom(t *testing.T) {
	b := newLBBed(t)
	for _, name := range []string{"ipv4/conf/all/forwarding", "ipv6/conf/all/forwarding"} {
		must(os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0))
	}
	text := func(flows, blocks int) string {
		return fmt.Sprintf("interfaces = ['lb0']\n[route]\nblocks4 = %d\n[lb]\nflows = %d\n"+
			"[[lb.vip]]\naddress = '192.0.2.1:80'\nprotocol = 'tcp'\n[[lb.vip.backend]]\naddress = '10.0.0.11'\n", blocks, flows)
	}
	out, err := netlink.LinkByName("out0")
	must(err)
	for n := range 3 { // each longer than 24 bits, so that it takes a block
		_, to, err := net.ParseCIDR(fmt.Sprintf("198.51.%d.128/25", n))
		must(err)
		must(netlink.RouteAdd(&netlink.Route{LinkIndex: out.Attrs().Index, Dst: to, Gw: net.IPv4(10, 0, 0, 12)}))
	}
	file := b.file(text(100, 2))
	p := runAttached(t, file)
	const route = "the IPv4 mirror has no room for "
	b.says(true, "status", "stage route  TOO SMALL: "+route, ": packets to them ask the kernel: raise blocks4 in [route], now 2")
	b.says(true, "doctor", "data plane culvert: "+route, "culvert reload --on culvert    # after raising the key")
	b.says(true, "status -j", `"short":"`+route)
	b.says(false, "status", "FULL")
	p.waitFor(t, "the routing table is larger than the mirror")

	for n := range uint32(90) {
		b.send(netip.MustParseAddrPort("192.0.2.1:80"), 1000+n)
	}
	b.says(true, "status", "NEARLY FULL: raise flows in [lb]")
	b.says(true, "doctor", "the flow table for 100 flows is nearly full: new flows may find no room, and move when backends change")
	for n := range uint32(20) {
		b.send(netip.MustParseAddrPort("192.0.2.1:80"), 2000+n)
	}
	b.says(true, "status", "  FULL: raise flows in [lb]")
	b.says(true, "doctor", "the flow table for 100 flows is full")
	p.waitFor(t, "the flow table is full")

	rewrite(t, file, text(1000, 64))
	b.expect(0, "is in force", "reload")
	b.says(false, "status", "TOO SMALL", "FULL")
	b.says(false, "doctor", "mirror has no room", "the flow table for")
}
