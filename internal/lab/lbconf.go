// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// birdLB is router's configuration of BIRD. It accepts the VIPs from both balancers and exports all paths to the kernel.
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

const birdLBNeighbor = `protocol bgp %[1]s_%[2]s {
	local %[3]s as %[4]d;
	neighbor %[5]s as %[6]d;
	passive on;
	error wait time 1, 2;
	ipv%[2]s { import filter vips%[2]s; export none; };
}
`

// lbRouterConfig returns the configuration of BIRD in router. Each family has a session of its own.
func lbRouterConfig(socket string, balancers int) string {
	var s strings.Builder
	fmt.Fprintf(&s, birdLB, socket, net18(lbNetClient, 1, false).Addr(), lbVIP4, lbVIP6)
	for _, ns := range numbered("lb", balancers) {
		for _, v6 := range []bool{false, true} {
			family := map[bool]string{false: "4", true: "6"}[v6]
			fmt.Fprintf(&s, birdLBNeighbor, ns, family, net18(lbNet(ns), 1, v6).Addr(), asLBRouter, net18(lbNet(ns), 2, v6).Addr(), asLBBalancers)
		}
	}
	return s.String()
}

const lbConfigHead = `# Made by 'culvert lab'; the balancers' files differ only in order, router_id and neighbors.
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

// lbTunnels has the encapsulation of each backend, and whether the outer header is IPv6.
var lbTunnels = [lbBackends]struct {
	encap string
	v6    bool
}{{"ipip", false}, {"gue", false}, {"ipip", true}, {"gue", true}}

// lbBackendAddr returns the address to which encapsulated packets for backend n are sent. Backends count from 0.
func lbBackendAddr(n int) netip.Addr {
	return net18(lbNetBackends+n+1, 2, lbTunnels[n].v6).Addr()
}

// lbConfig returns the configuration of culvert in the namespace of a balancer. The second balancer has VIPs and backends in
// the reverse order, since balancers must choose the same backends whatever the order is.
func lbConfig(ns string) string {
	var s strings.Builder
	k := lbNet(ns)
	fmt.Fprintf(&s, lbConfigHead, ns, asLBBalancers, net18(k, 2, false).Addr(), net18(k, 1, false).Addr(), asLBRouter, net18(k, 1, true).Addr())
	s.WriteString(lbVIPsConfig(lbBackends, ns == "lb2"))
	return s.String()
}

// lbVIPsConfig returns the tables of both VIPs with the first n backends, which may be in the reverse order.
func lbVIPsConfig(n int, reversed bool) string {
	var s strings.Builder
	vips := []netip.Addr{lbVIP4, lbVIP6}
	var backends []string
	for n, tunnel := range lbTunnels[:n] {
		backends = append(backends, fmt.Sprintf(lbConfigBackend, lbBackendAddr(n), tunnel.encap))
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

// about describes a namespace of the topology lb in a few words.
func (b *LB) about(ns string) string {
	switch {
	case ns == "router":
		return fmt.Sprintf("AS %d, BIRD", asLBRouter)
	case b.Configs[ns] != "":
		return fmt.Sprintf("AS %d, culvert", asLBBalancers)
	case ns != "client":
		tunnel := lbTunnels[ns[1]-'1']
		return "web server, " + tunnel.encap + map[bool]string{false: " over IPv4", true: " over IPv6"}[tunnel.v6]
	}
	return ""
}

// showLB returns the summary of a lab of the topology lb, with commands to try.
func (l *Lab) showLB() string {
	var s strings.Builder
	fmt.Fprintf(&s, "the VIPs are %s and %s, port %d\nto try:\n", l.LB.VIP4, l.LB.VIP6, lbHTTPPort)
	try := func(ns, command string) { fmt.Fprintf(&s, "  culvert lab exec %s %s %s\n", l.Name, ns, command) }
	service := netip.AddrPortFrom(l.LB.VIP4, lbHTTPPort).String() + "/tcp"
	try("client", "curl "+lbURL(l.LB.VIP4))
	try("client", "curl '"+lbURL(l.LB.VIP6)+"'") // shells take brackets for a pattern
	try("router", "birdc -s "+l.birdSocket("router")+" show route all")
	try("lb1", "culvert lb show")
	try("lb1", "culvert lb explain "+service+" "+net18(lbNetClient, 2, false).Addr().String()+":40000")
	for _, balancer := range []string{"lb1", "lb2"} { // each has its own drains
		try(balancer, "culvert lb drain "+service+" "+lbBackendAddr(0).String()+"   # on every balancer")
	}
	try("b1", "culvert lb decap show")
	return s.String()
}
