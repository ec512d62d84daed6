// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// birdLB takes the VIPs of both balancers and gives the kernel all ways to them.
const birdLB = `# Made by 'culvert lab'; 'birdc -s %[1]s configure' reads it again.
log stderr all;
router id %[2]s;
protocol device { scan time 1; }
protocol kernel kernel4 {
	merge paths on;
	ipv4 { import none; export where source = RTS_BGP; };
}
protocol kernel kernel6 {
	merge paths on;
	ipv6 { import none; export where source = RTS_BGP; };
}
filter vips4 { if net ~ [ %[3]s/32 ] then accept; reject; }
filter vips6 { if net ~ [ %[4]s/128 ] then accept; reject; }
`

const birdLBNeighbour = `protocol bgp %[1]s_%[2]s {
	local %[3]s as %[4]d;
	neighbor %[5]s as %[6]d;
	passive on;
	error wait time 1, 2;
	ipv%[2]s { import filter vips%[2]s; export none; };
}
`

// lbRouterConfig is what BIRD reads in router. Each family has a session of its own.
func lbRouterConfig(socket string) string {
	var s strings.Builder
	fmt.Fprintf(&s, birdLB, socket, net18(lbNetClient, 1, false).Addr(), lbVIP4, lbVIP6)
	for _, ns := range slicesOf("lb", lbBalancers) {
		for _, v6 := range []bool{false, true} {
			family := map[bool]string{false: "4", true: "6"}[v6]
			fmt.Fprintf(&s, birdLBNeighbour, ns, family, net18(lbNet(ns), 1, v6).Addr(), asLBRouter, net18(lbNet(ns), 2, v6).Addr(), asLBBalancers)
		}
	}
	return s.String()
}

const lbConfigHead = `# Made by 'culvert lab'; all balancers have the same but for order, router_id and the neighbours.
name = "%[1]s"
interfaces = ["to-router"]
metrics = "127.0.0.1:9441"

[lb]
source4 = "10.200.0.0/16"
source6 = "fd00:200::/64"
seed = "lab"

[lb.bgp]
asn = %[2]d
router_id = "%[3]s"

[[lb.bgp.neighbor]]
address = "%[4]s"
asn = %[5]d

[[lb.bgp.neighbor]]
address = "%[6]s"
asn = %[5]d
`

const lbConfigVIP = `
[[lb.vip]]
address = "%s"
protocol = "tcp"

[lb.vip.check]
type = "http"
path = "/health"
`

const lbConfigBackend = `
[[lb.vip.backend]]
address = "%s"
encapsulation = "%s"
`

// lbWays are how the backends are reached: with what, and whether over IPv6.
var lbWays = [lbBackends]struct {
	encap string
	v6    bool
}{{"ipip", false}, {"gue", false}, {"ipip", true}, {"gue", true}}

// lbBackendAddr is where the n-th backend, from 0, takes encapsulated packets.
func lbBackendAddr(n int) netip.Addr {
	return net18(lbNetBackends+n+1, 2, lbWays[n].v6).Addr()
}

// lbConfig is what 'culvert run' reads in the namespace of a balancer. Balancers choose the same backends whatever the
// order is in which they are told of them: the second one is told the other way round.
func lbConfig(ns string) string {
	var s strings.Builder
	k, reversed := lbNet(ns), ns == "lb2"
	fmt.Fprintf(&s, lbConfigHead, ns, asLBBalancers, net18(k, 2, false).Addr(), net18(k, 1, false).Addr(), asLBRouter, net18(k, 1, true).Addr())
	vips := []netip.Addr{lbVIP4, lbVIP6}
	var backends []string
	for n, way := range lbWays {
		backends = append(backends, fmt.Sprintf(lbConfigBackend, lbBackendAddr(n), way.encap))
	}
	if reversed {
		slices.Reverse(vips)
		slices.Reverse(backends)
	}
	for _, vip := range vips {
		fmt.Fprintf(&s, lbConfigVIP, netip.AddrPortFrom(vip, lbHTTPPort))
		s.WriteString(strings.Join(backends, ""))
	}
	return s.String()
}

// about tells in a few words what a namespace of the topology lb does.
func (b *LB) about(ns string) string {
	switch {
	case ns == "router":
		return fmt.Sprintf("AS %d, BIRD", asLBRouter)
	case b.Configs[ns] != "":
		return fmt.Sprintf("AS %d, culvert", asLBBalancers)
	case ns != "client":
		way := lbWays[ns[1]-'1']
		return "web server, " + way.encap + map[bool]string{false: " over IPv4", true: " over IPv6"}[way.v6]
	}
	return ""
}

// showLB tells what to do with a lab of the topology lb.
func (l *Lab) showLB() string {
	var s strings.Builder
	fmt.Fprintf(&s, "the VIPs are %s and %s, port %d\nto try:\n", l.LB.VIP4, l.LB.VIP6, lbHTTPPort)
	try := func(ns, command string) { fmt.Fprintf(&s, "  culvert lab exec %s %s %s\n", l.Name, ns, command) }
	service := netip.AddrPortFrom(l.LB.VIP4, lbHTTPPort).String() + "/tcp"
	try("client", "curl "+lbURL(l.LB.VIP4))
	try("client", "curl "+lbURL(l.LB.VIP6))
	try("router", "birdc -s "+l.birdSocket("router")+" show route all")
	try("lb1", "culvert lb show")
	try("lb1", "culvert lb explain "+service+" "+net18(lbNetClient, 2, false).Addr().String()+":40000")
	try("lb1", "culvert lb drain "+service+" "+lbBackendAddr(0).String())
	try("b1", "culvert lb decap show")
	return s.String()
}
