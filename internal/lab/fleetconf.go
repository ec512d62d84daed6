// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Ports of etcd.
const (
	etcdClientPort = 2379
	etcdPeerPort   = 2380
)

// fleetEndpoints are the URLs of the members of etcd for clients.
func fleetEndpoints() (urls []string) {
	for _, ns := range numbered("e", fleetMembers) {
		urls = append(urls, fmt.Sprintf("https://%s:%d", net18(lbNet(ns), 2, false).Addr(), etcdClientPort))
	}
	return urls
}

// memberScript starts the member of etcd in a namespace.
func (l *Lab) memberScript(ns string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "# Made by 'culvert lab'; starts the member of etcd in %s.\nexec %s cluster serve --dir %s --data %s --name %s", ns, l.Culvert, l.Fleet.Cluster,
		l.file(ns+"-data"), ns)
	for _, m := range numbered("e", fleetMembers) {
		fmt.Fprintf(&s, " \\\n\t--member %s=https://%s:%d", m, net18(lbNet(m), 2, false).Addr(), etcdPeerPort)
	}
	return s.String() + "\n"
}

// clusterTable returns the table [cluster] with the certificate in a directory. node is "" for an operator.
func (l *Lab) clusterTable(dir, file, node string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "\n[cluster]\nname = %q\nendpoints = [\"%s\"]\n", fleetName, strings.Join(fleetEndpoints(), `", "`))
	if node != "" {
		fmt.Fprintf(&s, "node = %q\nroles = [%q]\nstate_dir = %q\n", node, fleetRole(node), l.file(node+"-state"))
	}
	fmt.Fprintf(&s, "\n[cluster.tls]\nca = %q\ncert = %q\nkey = %q\n", filepath.Join(dir, "ca.pem"), filepath.Join(dir, file+".pem"), filepath.Join(dir, file+"-key.pem"))
	return s.String()
}

// fleetRole is the role of a node.
func fleetRole(ns string) string {
	if strings.HasPrefix(ns, "lb") {
		return "lb"
	}
	return "filter"
}

const fleetFilterHead = `# Made by 'culvert lab'; the rules come from the cluster.
name = "%[1]s"
interfaces = ["to-client"]
metrics = "127.0.0.1:9441"

[filter]
`

// fleetNodeConfig returns a node's own file: what differs between nodes, or depends on the host.
func (l *Lab) fleetNodeConfig(ns string) string {
	if fleetRole(ns) == "filter" {
		return fmt.Sprintf(fleetFilterHead, ns)
	}
	k := lbNet(ns)
	return fmt.Sprintf(lbConfigHead, ns, asLBBalancers, net18(k, 2, false).Addr(), net18(k, 1, false).Addr(), asLBRouter, net18(k, 1, true).Addr())
}

const fleetFilterDocument = `# The rules of all filters.
[[filter.set]]
name = "bad"
entries = ["192.0.2.0/24"]

[[filter.rule]]
name = "bad"
action = "drop"
src = "@bad"

[[filter.rule]]
name = "web"
action = "count"
expression = "tcp port 80"
`

// fleetDocument returns the first document of a role.
func fleetDocument(role string) string {
	if role == "filter" {
		return fleetFilterDocument
	}
	return "# The services of all balancers.\n" + lbVIPsConfig(lbBackends, false)
}

// about describes a namespace of the topology fleet in a few words.
func (f *Fleet) about(ns string) string {
	switch {
	case f.Nodes[ns] != "":
		return "node, role " + fleetRole(ns)
	case f.Members[ns] != "":
		return "member of etcd"
	case ns == "ops":
		return "operator"
	case ns == "router":
		return fmt.Sprintf("AS %d, BIRD", asLBRouter)
	case strings.HasPrefix(ns, "b"):
		return "web server"
	}
	return ""
}

// showFleet returns the summary of a lab of the topology fleet, with commands to try.
func (l *Lab) showFleet() string {
	var s strings.Builder
	fmt.Fprintf(&s, "the VIPs are %s and %s, port %d; documents of the fleet: %s\nto try:\n", lbVIP4, lbVIP6, lbHTTPPort, l.Fleet.Documents)
	try := func(ns, command string) { fmt.Fprintf(&s, "  culvert lab exec %s %s %s\n", l.Name, ns, command) }
	fleet := func(verb string) { try("ops", "culvert fleet "+verb+" -c "+l.Fleet.Config) }
	try("client", "curl "+lbURL(lbVIP4))
	fleet("status")
	fleet("apply --role filter " + filepath.Join(l.Fleet.Documents, "filter.toml"))
	fleet("filter add drop icmp --for 1m")
	fleet("where " + lbVIP4.String())
	fleet("history -v")
	try("ops", "culvert cluster list --dir "+l.Fleet.Cluster)
	fmt.Fprintf(&s, "  ip netns pids %s | xargs kill -9   # a member of etcd\n", netnsName(l.Name, "e1"))
	try("e1", "sh "+l.Fleet.Members["e1"]+"   # again")
	return s.String()
}
