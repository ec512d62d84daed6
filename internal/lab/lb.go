// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// The topology lb: two load balancers in front of four web servers, and a client.
//
//	             lb1   lb2
//	               \   /
//	client ------- router ------- b1, b2, b3, b4
//
// router is Linux with BIRD. Both load balancers run culvert and announce the VIPs to router by BGP. router spreads flows
// over both (ECMP). Each backend has the VIPs on its loopback, decapsulates packets with 'culvert lb decap', and answers the
// client directly. Each backend has another encapsulation: IPIP or GUE, over IPv4 or IPv6.
var lbTopology = topology{
	about:      "two load balancers that announce VIPs by BGP, four web servers, and a client",
	namespaces: lbNamespaces(Options{}),
	spaces:     lbNamespaces,
	check:      checkLB,
	build:      buildLB,
}

func lbNamespaces(o Options) []string {
	return append([]string{"client", "router"}, append(numbered("lb", o.balancers()), numbered("b", lbBackends)...)...)
}

// balancers returns the number of load balancers.
func (o Options) balancers() int {
	if o.Balancers == 0 {
		return lbBalancers
	}
	return o.Balancers
}

const (
	lbBalancers     = 2 // unless Options.Balancers says another number
	lbMostBalancers = 9
	lbBackends      = 4
	// Numbers of the networks, for net18. The first balancer and the first backend have the next number.
	lbNetClient    = 1
	lbNetBalancers = 10
	lbNetBackends  = 20
	lbNetMembers   = 30 // this and the others are of the topology fleet
	lbNetFilters   = 40
	lbNetOps       = 50
	// lbOverhead is the largest overhead of an encapsulation in bytes: that of GUE over IPv6.
	lbOverhead = 48
	// lbTimeout bounds each step.
	lbTimeout = 5 * time.Minute
	// AS numbers (RFC 5398).
	asLBRouter    = 64496
	asLBBalancers = 64497
)

// The addresses of the service (RFC 5737, RFC 3849).
var (
	lbVIP4 = netip.MustParseAddr("203.0.113.80")
	lbVIP6 = netip.MustParseAddr("2001:db8:80::80")
)

// LB describes what the topology lb has built.
type LB struct {
	VIP4 netip.Addr `json:"vip4"`
	VIP6 netip.Addr `json:"vip6"`
	// Configs are the paths of the balancers' configuration files, by namespace.
	Configs map[string]string `json:"configs"`
}

// numbered returns a name with each number from 1 to n behind it.
func numbered(name string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("%s%d", name, i+1))
	}
	return all
}

func checkLB(o Options) error {
	if len(o.Routers) > 0 || o.SegmentSwitch || o.BFD != 0 || o.Forward || o.IPv6 || o.Routes != (Routes{}) || o.Plain || o.StaticNeighbors {
		return errors.New("leave out the options of other topologies")
	}
	if o.Timeout < 0 {
		return errors.New("a time must not be negative")
	}
	if o.balancers() < 1 || o.balancers() > lbMostBalancers {
		return fmt.Errorf("%d balancers: choose 1 to %d", o.Balancers, lbMostBalancers)
	}
	if o.MTU > 3400 { // with a larger MTU a veth takes multi-buffer programs only, and no redirects to other veths
		return fmt.Errorf("MTU %d: choose 1280 to 3400", o.MTU)
	}
	return nil
}

// lbNet returns the number of the network between a namespace and router.
func lbNet(ns string) int {
	switch {
	case ns == "client":
		return lbNetClient
	case strings.HasPrefix(ns, "lb"):
		return lbNetBalancers + int(ns[2]-'0')
	case strings.HasPrefix(ns, "e"):
		return lbNetMembers + int(ns[1]-'0')
	case strings.HasPrefix(ns, "f"):
		return lbNetFilters + int(ns[1]-'0')
	case ns == "ops":
		return lbNetOps
	}
	return lbNetBackends + int(ns[1]-'0')
}

func buildLB(ctx context.Context, l *Lab, o Options) error {
	if o.Timeout == 0 {
		o.Timeout = lbTimeout
	}
	if err := l.needPrograms("bird", "birdc", "curl"); err != nil {
		return err
	}
	w := waiter{lab: l, out: o.Out, timeout: o.Timeout}
	l.LB = &LB{VIP4: lbVIP4, VIP6: lbVIP6, Configs: map[string]string{}}
	return firstError(
		func() error { return l.wireLB(o) },
		func() error { return l.startLBRouter(o.balancers()) },
		func() error { return l.startLBBackends(ctx, w, lbBackends, "to-router") },
		func() error { return l.startLBBalancers(ctx, w, o.balancers()) },
		func() error { return l.waitVIPs(ctx, w, "router", o.balancers()) },
		func() error { return l.waitAnswers(ctx, w, lbBackends) },
	)
}

// wireLB makes a link from router to every other namespace. Those of balancers and backends have a larger MTU, for
// encapsulated packets.
func (l *Lab) wireLB(o Options) error {
	for _, ns := range l.Namespaces {
		if ns.Name == "router" {
			continue
		}
		if err := l.wireSpoke("router", ns.Name, o); err != nil {
			return err
		}
	}
	progress(o.Out, "veth pairs from router to all others")
	return l.Do("router", func() error { return join(forwards(), spreadsFlows()) })
}

// spreadsFlows makes routes with several next hops in the calling thread's namespace spread flows over them. Policy 3 hashes the fields
// of the packet. Policy 1 would use the hash that the client's stack has put into the skb, which a veth keeps and which changes when TCP
// retransmits.
func spreadsFlows() error {
	return join(writeSysctl("ipv4/fib_multipath_hash_policy", "3"), writeSysctl("ipv6/fib_multipath_hash_policy", "3"),
		writeSysctl("ipv4/fib_multipath_hash_fields", hashFields), writeSysctl("ipv6/fib_multipath_hash_fields", hashFields))
}

// wireSpoke makes a link from a hub to a client, balancer or backend, which gets default routes.
func (l *Lab) wireSpoke(hub, ns string, o Options) error {
	k := lbNet(ns)
	if ns != "client" {
		o.MTU += lbOverhead
	}
	err := l.addPair(
		end{ns: hub, name: "to-" + ns, addrs: both(k, 1)},
		end{ns: ns, name: "to-" + hub, addrs: both(k, 2)}, o)
	if err != nil {
		return err
	}
	return l.Do(ns, func() error { return defaultRoutes(k, 1) })
}

// hashFields selects the addresses, the protocol and the ports, as a mask.
const hashFields = "55"

func (l *Lab) startLBRouter(balancers int) error {
	if err := writeFile(l.birdConfig("router"), lbRouterConfig(l.birdSocket("router"), balancers)); err != nil {
		return err
	}
	return l.startBIRD("router")
}

// lbHTTPPort is the port of the service.
const lbHTTPPort = 80

// startLBBackends gives each of n backends the VIPs as addresses, the decapsulation program on an interface, and a web server.
func (l *Lab) startLBBackends(ctx context.Context, w waiter, n int, iface string) error {
	for _, ns := range numbered("b", n) {
		err := l.Do(ns, func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return fmt.Errorf("find the loopback interface: %w", err)
			}
			return addAddrs(lo, []netip.Prefix{netip.PrefixFrom(lbVIP4, 32), netip.PrefixFrom(lbVIP6, 128)})
		})
		if err != nil {
			return fmt.Errorf("give %s the VIPs: %w", ns, err)
		}
		if _, err := l.Run(ctx, ns, l.Culvert, "lb", "decap", "add", iface, "--from", "10.200.0.0/16", "--from", "fd00:200::/64",
			"--vip", lbVIP4.String(), "--vip", lbVIP6.String()); err != nil {
			return err
		}
		if err := l.StartWebServer(ns); err != nil {
			return err
		}
	}
	for _, ns := range numbered("b", n) {
		err := w.until(ctx, "web server in "+ns, func(ctx context.Context) (bool, string) {
			answer, err := l.Run(ctx, ns, "curl", "-sS", "-m", "1", "http://127.0.0.1/")
			if err != nil {
				return false, oneLine(err.Error())
			}
			name := strings.TrimSpace(string(answer))
			return name == ns, "answers as " + name
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// WebProcess returns the name of the process of a backend's web server.
func WebProcess(ns string) string { return ns + "-web" }

// CulvertProcess returns the name of the process of culvert in a namespace.
func CulvertProcess(ns string) string { return ns + "-culvert" }

// StartWebServer starts the web server of a backend, which answers with the backend's name.
func (l *Lab) StartWebServer(ns string) error {
	return l.spawn(WebProcess(ns), ns, l.Culvert, "lab", "web", "--listen", fmt.Sprintf(":%d", lbHTTPPort), ns)
}

func (l *Lab) startLBBalancers(ctx context.Context, w waiter, n int) error {
	for _, ns := range numbered("lb", n) {
		config := l.file(ns + ".toml")
		l.LB.Configs[ns] = config
		if err := writeFile(config, lbConfig(ns)); err != nil {
			return err
		}
		if err := l.startCulvert(ctx, w, ns, config, "to-router"); err != nil {
			return err
		}
	}
	return nil
}

// StartBalancer starts culvert in the namespace of a balancer after it was stopped. It does not wait.
func (l *Lab) StartBalancer(ns string) error {
	return l.StartCulvert(ns, l.Culvert, l.LB.Configs[ns])
}

// waitVIPs waits until a router has a route to each VIP over all balancers.
func (l *Lab) waitVIPs(ctx context.Context, w waiter, router string, balancers int) error {
	for _, vip := range []netip.Addr{lbVIP4, lbVIP6} {
		err := w.until(ctx, "routes to "+vip.String(), func(context.Context) (bool, string) {
			n, err := l.NextHops(router, vip)
			if err != nil {
				return false, oneLine(err.Error())
			}
			return n == balancers, fmt.Sprintf("%d of %d balancers", n, balancers)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// NextHops returns the number of next hops of the host route to an address in a namespace, 0 if there is no such route.
func (l *Lab) NextHops(ns string, addr netip.Addr) (n int, err error) {
	err = l.Do(ns, func() error {
		family := netlink.FAMILY_V4
		if addr.Is6() {
			family = netlink.FAMILY_V6
		}
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Dst: netlink.NewIPNet(addr.AsSlice())}, netlink.RT_FILTER_DST)
		if err != nil {
			return fmt.Errorf("list the routes to %s: %w", addr, err)
		}
		for _, r := range routes {
			n += max(1, len(r.MultiPath))
		}
		return nil
	})
	return n, err
}

// waitAnswers waits until all backends have answered the client, in both families.
func (l *Lab) waitAnswers(ctx context.Context, w waiter, backends int) error {
	for _, url := range []string{lbURL(lbVIP4), lbURL(lbVIP6)} {
		seen := map[string]bool{}
		err := w.until(ctx, url, func(ctx context.Context) (bool, string) {
			answer, err := l.Run(ctx, "client", "curl", "-sS", "-m", "1", url)
			if err != nil {
				return false, oneLine(err.Error())
			}
			seen[strings.TrimSpace(string(answer))] = true
			return len(seen) == backends, fmt.Sprintf("%d of %d backends have answered", len(seen), backends)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func lbURL(vip netip.Addr) string {
	return fmt.Sprintf("http://%s/", netip.AddrPortFrom(vip, lbHTTPPort))
}
