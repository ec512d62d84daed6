// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// The topology fleet: three load balancers and two packet filters with one configuration, which they have from an etcd of three
// members.
//
//	         f1            lb1, lb2, lb3
//	       /    \        /
//	client        router --- b1, b2, b3, b4
//	       \    /        \
//	         f2            e1, e2, e3, ops
//
// router, balancers and backends are as in the topology lb. client spreads its flows over both filters, which are Linux routers with
// culvert's filter on the interface towards client. Members of etcd run in e1 to e3, with 'culvert cluster serve'. In ops is the
// operator: authority, certificates, and the documents of the fleet.
var fleetTopology = topology{
	about:      "three load balancers and two filters with one configuration, an etcd of three members, four web servers, a client",
	namespaces: fleetNamespaces(),
	check:      checkFleet,
	build:      buildFleet,
}

const (
	fleetBalancers = 3
	fleetFilters   = 2
	fleetMembers   = 3
	// fleetClientNet is the number of the network between client and the first filter, for net18.
	fleetClientNet = 1
	// fleetNode is how long all nodes have for their first document.
	fleetNode = time.Minute
)

// fleetName is the name of the cluster.
const fleetName = "lab"

func fleetNamespaces() []string {
	all := []string{"client", "router", "ops"}
	for _, some := range [][]string{numbered("f", fleetFilters), numbered("lb", fleetBalancers), numbered("b", lbBackends), numbered("e", fleetMembers)} {
		all = append(all, some...)
	}
	return all
}

// Fleet describes what the topology fleet has built.
type Fleet struct {
	// Cluster is the directory of the cluster's authority, for --dir of 'culvert cluster'.
	Cluster string `json:"cluster"`
	// Config has the operator's certificate, for -c of 'culvert fleet'.
	Config string `json:"config"`
	// Documents has the documents that all began with, as files.
	Documents string `json:"documents"`
	// Nodes are the configuration files of the nodes, by namespace.
	Nodes map[string]string `json:"nodes"`
	// Members are the scripts that start the members of etcd, by namespace.
	Members map[string]string `json:"members"`
}

func checkFleet(o Options) error {
	o.Balancers = fleetBalancers
	return checkLB(o)
}

func buildFleet(ctx context.Context, l *Lab, o Options) error {
	if o.Timeout == 0 {
		o.Timeout = lbTimeout
	}
	if err := l.needPrograms("bird", "birdc", "curl", "ping"); err != nil {
		return err
	}
	w := waiter{lab: l, out: o.Out, timeout: o.Timeout}
	l.Fleet = &Fleet{
		Cluster: l.file("cluster"), Config: l.file("ops.toml"), Documents: l.file("documents"),
		Nodes: map[string]string{}, Members: map[string]string{},
	}
	return firstError(
		func() error { return l.wireFleet(o) },
		func() error { return l.startFleetEtcd(ctx, w) },
		func() error { return l.startLBRouter(fleetBalancers) },
		func() error { return l.startLBBackends(ctx, w, lbBackends, "to-router") },
		func() error { return l.startFleetNodes(ctx, w) },
		func() error { return l.applyFleet(ctx, w) },
		func() error { return l.waitVIPs(ctx, w, "router", fleetBalancers) },
		func() error { return l.waitAnswers(ctx, w, lbBackends) },
	)
}

// wireFleet makes the links of the topology lb, and those of the filters.
func (l *Lab) wireFleet(o Options) error {
	for _, ns := range l.Namespaces {
		if ns.Name == "router" || ns.Name == "client" {
			continue
		}
		if err := l.wireSpoke("router", ns.Name, o); err != nil {
			return err
		}
	}
	for n, ns := range numbered("f", fleetFilters) {
		k := fleetClientNet + n
		err := l.addPair(
			end{ns: ns, name: "to-client", addrs: both(k, 1)},
			end{ns: "client", name: "to-" + ns, addrs: both(k, 2)}, o)
		if err != nil {
			return err
		}
		if err := join(l.Do(ns, forwards), l.Do("router", func() error { return routesVia(k, lbNet(ns), 2) })); err != nil {
			return err
		}
	}
	progress(o.Out, "veth pairs from router to all others, and from client to both filters")
	return join(
		l.Do("router", func() error { return join(forwards(), spreadsFlows()) }),
		l.Do("client", func() error { return join(spreadsFlows(), fleetDefaultRoutes()) }),
	)
}

// forwards makes the calling thread's namespace a router.
func forwards() error {
	return join(writeSysctl("ipv4/ip_forward", "1"), writeSysctl("ipv6/conf/all/forwarding", "1"))
}

// routesVia adds routes to network k via host n of network via.
func routesVia(k, via, n int) error {
	var errs []error
	for _, v6 := range []bool{false, true} {
		dst, err := netlink.ParseIPNet(net18(k, 0, v6).Masked().String())
		if err == nil {
			err = netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: net18(via, n, v6).Addr().AsSlice()})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("add a route to network %d: %w", k, err))
		}
	}
	return join(errs...)
}

// fleetDefaultRoutes adds default routes over both filters.
func fleetDefaultRoutes() error {
	var errs []error
	for _, v6 := range []bool{false, true} {
		var hops []*netlink.NexthopInfo
		for n, ns := range numbered("f", fleetFilters) {
			link, err := netlink.LinkByName("to-" + ns)
			if err != nil {
				return err
			}
			hops = append(hops, &netlink.NexthopInfo{LinkIndex: link.Attrs().Index, Gw: net18(fleetClientNet+n, 1, v6).Addr().AsSlice()})
		}
		all := "0.0.0.0/0"
		if v6 {
			all = "::/0"
		}
		dst, err := netlink.ParseIPNet(all)
		if err == nil {
			err = netlink.RouteAdd(&netlink.Route{Dst: dst, MultiPath: hops})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("add a default route over the filters: %w", err))
		}
	}
	return join(errs...)
}

// MemberProcess returns the name of the process of etcd in a namespace.
func MemberProcess(ns string) string { return ns + "-etcd" }

// startFleetEtcd makes the cluster's certificates, starts the members of its etcd, and lets the nodes and the operator in.
func (l *Lab) startFleetEtcd(ctx context.Context, w waiter) error {
	create := []string{l.Culvert, "cluster", "init", fleetName, "--dir", l.Fleet.Cluster}
	for _, url := range fleetEndpoints() {
		create = append(create, "--endpoint", url)
	}
	if _, err := l.Run(ctx, "ops", create...); err != nil {
		return err
	}
	for _, ns := range numbered("e", fleetMembers) {
		l.Fleet.Members[ns] = l.file(ns + ".sh")
		if err := writeFile(l.Fleet.Members[ns], l.memberScript(ns)); err != nil {
			return err
		}
		if err := l.StartMember(ns); err != nil {
			return err
		}
	}
	err := w.until(ctx, "etcd", func(ctx context.Context) (bool, string) {
		if _, err := l.Run(ctx, "ops", l.Culvert, "cluster", "list", "--dir", l.Fleet.Cluster); err != nil {
			return false, oneLine(err.Error())
		}
		return true, "serves"
	})
	if err != nil {
		return err
	}
	for _, ns := range l.fleetNodes() {
		dir, err := l.admit(ctx, "node-"+ns, "enrol", ns)
		if err != nil {
			return err
		}
		l.Fleet.Nodes[ns] = l.file(ns + ".toml")
		if err := writeFile(l.Fleet.Nodes[ns], l.fleetNodeConfig(ns)+l.clusterTable(dir, "node", ns)); err != nil {
			return err
		}
	}
	dir, err := l.admit(ctx, "writer-ops", "issue", "writer", "ops")
	if err != nil {
		return err
	}
	return writeFile(l.Fleet.Config, l.clusterTable(dir, "writer", ""))
}

// admit runs a verb of 'culvert cluster' that issues a certificate, and returns its directory.
func (l *Lab) admit(ctx context.Context, name string, verb ...string) (dir string, err error) {
	argv := append(append([]string{l.Culvert, "cluster"}, verb...), "--dir", l.Fleet.Cluster)
	if _, err := l.Run(ctx, "ops", argv...); err != nil {
		return "", err
	}
	issued := filepath.Join(l.Fleet.Cluster, "issued", name+"-*")
	found, err := filepath.Glob(issued)
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%d directories are called %s, want one: take the lab down and up again", len(found), issued)
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}

// StartMember starts the member of etcd in a namespace, also after it was stopped. It does not wait.
func (l *Lab) StartMember(ns string) error {
	return l.spawn(MemberProcess(ns), ns, "/bin/sh", l.Fleet.Members[ns])
}

// fleetNodes are the namespaces of nodes.
func (l *Lab) fleetNodes() []string {
	return append(numbered("f", fleetFilters), numbered("lb", fleetBalancers)...)
}

// startFleetNodes starts culvert on all nodes, whose own files have what differs between them.
func (l *Lab) startFleetNodes(ctx context.Context, w waiter) error {
	for _, ns := range l.fleetNodes() {
		iface := "to-router"
		if strings.HasPrefix(ns, "f") {
			iface = "to-client"
		}
		if err := l.startCulvert(ctx, w, ns, l.Fleet.Nodes[ns], iface); err != nil {
			return err
		}
	}
	return nil
}

// StartNode starts culvert in the namespace of a node after it was stopped. It does not wait.
func (l *Lab) StartNode(ns string) error {
	return l.StartCulvert(ns, l.Culvert, l.Fleet.Nodes[ns])
}

// applyFleet writes the first revision, which has what nodes of a role have in common.
func (l *Lab) applyFleet(ctx context.Context, w waiter) error {
	if err := os.MkdirAll(l.Fleet.Documents, 0o755); err != nil {
		return err
	}
	var changes []string
	for _, role := range []string{"lb", "filter"} {
		file := filepath.Join(l.Fleet.Documents, role+".toml")
		if err := writeFile(file, fleetDocument(role)); err != nil {
			return err
		}
		changes = append(changes, "role/"+role+"="+file)
	}
	return w.until(ctx, "the first revision", func(ctx context.Context) (bool, string) {
		argv := append([]string{"apply", "--canary", "0", "--step", "100%", "--wait", "2s", "--within", fleetNode.String(), "-m", "the lab's"}, changes...)
		// On a busy host the first checks of backends may fail for so long that the revision goes back. until would pause for long.
		const attempts = 5
		var err error
		for range attempts {
			if _, err = l.RunFleet(ctx, argv...); err == nil {
				return true, "runs on all nodes"
			}
		}
		return false, oneLine(err.Error())
	})
}

// RunFleet runs a verb of 'culvert fleet' as the operator.
func (l *Lab) RunFleet(ctx context.Context, verb ...string) ([]byte, error) {
	return l.Run(ctx, "ops", append(append([]string{l.Culvert, "fleet"}, verb...), "-c", l.Fleet.Config)...)
}
