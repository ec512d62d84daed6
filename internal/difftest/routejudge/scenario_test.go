// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"fmt"
	"slices"
	"strings"
)

// scenario is a configuration of the host.
type scenario struct {
	name string
	// sysctls are written below /proc/sys/net after the routes have been added.
	sysctls [][2]string
	// gone says that the kernel removes some routes by itself, so that deleting a route may fail.
	gone bool
	// lines are commands for ip(8) that run after the routes have been added.
	lines string
	// tables are the routing tables that get routes. If it is empty, only the main table does.
	tables []int
	// simple and locals are table.simple and table.locals.
	simple bool
	locals bool
	// takes says which ordinary packets the fast path must forward when it has a mirror.
	takes flow
	// exempt tells which of these packets may be left to the kernel nevertheless. It may be nil.
	exempt func(p *packet) bool
	// full says that the kernel checks IPv4 sources even without rp_filter.
	full bool
	// down are ports that are down, so that nothing can be sent to them.
	down []int
}

// each returns a sysctl of every port.
func each(family, name, value string) (all [][2]string) {
	for i := range ports {
		all = append(all, [2]string{fmt.Sprintf("%s/conf/%s/%s", family, portName(i), name), value})
	}
	return all
}

// both is each for IPv4, with the sysctl for all ports.
func both(name, value string) [][2]string {
	return append(each("ipv4", name, value), [2]string{"ipv4/conf/all/" + name, value})
}

// stranger4 tells whether an IPv4 packet has a source outside of the router's own networks. The route back to such a source may
// be any, and the fast path leaves sources that it cannot check to the kernel.
func stranger4(p *packet) bool { return p.src.Is4() && p.src.As4()[0] != 10 }

// sixByOne tells whether an IPv6 packet came in by one of the ports that these scenarios configure.
func sixByOne(p *packet) bool { return p.src.Is6() && p.port >= 1 }

func isIPv6(p *packet) bool { return p.src.Is6() }

// useNeighbors has the kernel choose paths by the states of their neighbors.
const useNeighbors = "ipv4/fib_multipath_use_neigh"

var scenarios = []scenario{
	{name: "simple routes", simple: true, takes: flowInner},
	{name: "all kinds of routes", takes: flowAddresses},
	{
		name: "default routes", takes: flowAddresses,
		lines: "route add default via 10.1.2.4 dev p2\nroute add default via fe80::2:5 dev p2\n",
	},
	{
		name: "default routes that are simple", takes: flowInner, simple: true,
		lines: "route add default via 10.1.2.4 dev p2\nroute add default via fe80::2:5 dev p2\n",
	},
	{name: "local routes", locals: true, full: true, takes: flowAddresses, exempt: stranger4},
	{name: "paths by ports", takes: flowPorts, sysctls: [][2]string{
		{"ipv4/fib_multipath_hash_policy", "1"}, {"ipv6/fib_multipath_hash_policy", "1"}}},
	{name: "paths by inner headers or chosen fields", takes: flowNone, sysctls: [][2]string{
		{"ipv4/fib_multipath_hash_policy", "2"}, {"ipv6/fib_multipath_hash_policy", "3"}, {"ipv6/fib_multipath_hash_fields", "42"}}},
	{name: "paths with neighbors", takes: flowNone, sysctls: [][2]string{{useNeighbors, "1"}}},
	{name: "strict sources, simple routes", simple: true, takes: flowInner, exempt: stranger4,
		sysctls: [][2]string{{"ipv4/conf/all/rp_filter", "1"}}},
	{name: "sources by port", takes: flowAddresses, exempt: stranger4, sysctls: [][2]string{
		{"ipv4/conf/p0/rp_filter", "1"}, {"ipv4/conf/p1/rp_filter", "2"}}},
	{name: "strict sources, local routes", locals: true, full: true, takes: flowNone,
		sysctls: [][2]string{{"ipv4/conf/all/rp_filter", "1"}}},
	{name: "accept local", takes: flowNone, sysctls: append(each("ipv4", "accept_local", "1"), each("ipv4", "route_localnet", "1")...)},
	{name: "directed broadcasts, source routes, no redirects", takes: flowAddresses, sysctls: slices.Concat(
		both("bc_forwarding", "1"), both("accept_source_route", "1"), both("send_redirects", "0"))},
	// The kernel forwards IPv6 by the sysctl for all ports, bpf_fib_lookup by that of the port.
	{name: "not from one port", takes: flowAddresses, exempt: sixByOne, sysctls: [][2]string{
		{"ipv4/conf/p1/forwarding", "0"}, {"ipv6/conf/p1/forwarding", "0"}}},
	{name: "from one port only", takes: flowAddresses, exempt: sixByOne, sysctls: [][2]string{
		{"ipv4/ip_forward", "0"}, {"ipv4/conf/p2/forwarding", "1"}, {"ipv6/conf/all/forwarding", "0"},
		{"ipv6/conf/p2/force_forwarding", "1"}, {"ipv6/conf/p1/forwarding", "1"}}},
	{name: "IPv6 off on a port", takes: flowAddresses, gone: true, exempt: isIPv6, sysctls: [][2]string{{"ipv6/conf/p2/disable_ipv6", "1"}}},
	{name: "route MTU of the path", takes: flowAddresses, sysctls: [][2]string{{"ipv4/ip_forward_use_pmtu", "1"}}},
	{name: "port down", takes: flowAddresses, gone: true, down: []int{2}, lines: "link set p2 down\n"},
	{
		name: "rules", tables: []int{mainTable, 100, 101, 102, 103}, full: true, takes: flowNone,
		lines: rules("from 20.128.0.0/9 table 100", "to 21.0.0.0/8 table 101", "iif p1 table 102", "fwmark 1 table 103",
			"dport 53 ipproto udp table 103", "sport 1-2000 table 101", "tos 0x10 table 100", "from 26.0.0.0/8 prohibit",
			"from 27.0.0.0/8 blackhole", "to 28.0.0.0/8 unreachable", "oif p2 table 101", "not from 10.0.0.0/8 iif p0 table 102",
			"iif lo table 100", "to 29.0.0.0/8 table 101 suppress_prefixlength 12") +
			rules6("from 2001:db8:8000::/33 table 100", "iif p1 table 102", "dport 443 ipproto tcp table 103",
				"to 2001:db8:1000::/36 prohibit", "to 2001:db8:2000::/36 blackhole", "fwmark 1 table 101", "iif lo table 100"),
	},
}

// rules returns commands that add routing rules.
func rules(selectors ...string) string {
	var b strings.Builder
	for i, s := range selectors {
		fmt.Fprintf(&b, "rule add pref %d %s\n", 1000+10*i, s)
	}
	return b.String()
}

// rules6 is rules for IPv6. It marks the lines, since ip(8) takes the family of a rule without addresses from its options.
func rules6(selectors ...string) string {
	return strings.ReplaceAll(rules(selectors...), "rule add", six+"rule add")
}
