// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
)

// The topology all: every stage on one machine, rut, in one process with one file.
//
//	           as1h        as3h
//	            |           |
//	           as1         as3
//	              \       /
//	client ------- rut ------- peer
//	              /   \
//	             b1   b2
//
// rut is AS 2 of topology scion3, routes between client and the prefixes that peer announces to its BIRD, filters, and balances
// a service of the backends of topology lb, whose VIPs it announces to peer.
var allTopology = topology{
	about:      "a SCION router, IP router, packet filter and load balancer on one machine, rut, with their neighbors",
	namespaces: append([]string{"rut", "client", "peer", "as1", "as1h", "as3", "as3h"}, numbered("b", allBackends)...),
	check:      checkAll,
	build:      buildAll,
}

// allBackends is the number of backends. The networks of others would be those of links between ASes.
const allBackends = 2

// netAllPeer is the number of the network between rut and peer, for net18. rut's host number there is 1 for BIRD, and 3 for
// culvert's BGP.
const netAllPeer = 30

// allPage is where rut has its page to look at. A browser gets there by a way like that of docs/web.md.
const allPage = "127.0.0.1:9480"

// allBlocked is the number of client's second address, which the filter blocks.
const allBlocked = 66

// All describes what the topology all has built.
type All struct {
	Config string `json:"config"`  // culvert's file
	DropIn string `json:"drop_in"` // and its drop-in, with the filter
	// Blocked is the address of client whose packets the filter drops.
	Blocked netip.Addr `json:"blocked"`
	// Protected is a service of rut that the filter protects.
	Protected netip.AddrPort `json:"protected"`
}

func checkAll(o Options) error {
	if len(o.Routers) > 0 {
		return errors.New("culvert runs in rut, and the reference router elsewhere: leave out the routers")
	}
	if err := checkScion3(o); err != nil {
		return err
	}
	return checkLB(Options{MTU: o.MTU})
}

func buildAll(ctx context.Context, l *Lab, o Options) error {
	if o.BFD == 0 {
		o.BFD = defaultBFD
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if err := l.needPrograms("ping", "bird", "birdcl", "curl"); err != nil {
		return err
	}
	if err := o.Peers.Build(ctx, o.Out); err != nil {
		return err
	}
	l.All = &All{
		Config: l.file("culvert.toml"), DropIn: l.file("culvert.d/filter.toml"),
		Blocked:   net18(lbNetClient, allBlocked, false).Addr(),
		Protected: netip.AddrPortFrom(net18(lbNetClient, 1, false).Addr(), routerMetrics),
	}
	w := waiter{lab: l, out: o.Out, timeout: o.Timeout}
	return firstError(
		func() error { return l.wireAll(o) },
		func() error { return l.configureAll(ctx, o) },
		func() error { return join(l.startBIRD("rut"), l.startBIRD("peer")) },
		func() error { return l.startLBBackends(ctx, w, allBackends, "to-rut") },
		func() error { return l.startAllASes(o) },
		func() error { return l.startCulvert(ctx, w, "rut", l.All.Config, l.allInterfaces()...) },
		func() error { return l.waitAll(ctx, w) },
	)
}

// wireAll makes the links.
func (l *Lab) wireAll(o Options) error {
	if err := l.wireScion3(o, "rut"); err != nil {
		return err
	}
	for _, ns := range append([]string{"client"}, numbered("b", allBackends)...) {
		if err := l.wireSpoke("rut", ns, o); err != nil {
			return err
		}
	}
	err := l.addPair(
		end{ns: "rut", name: "to-peer", addrs: append(both(netAllPeer, 1), both(netAllPeer, 3)...)},
		end{ns: "peer", name: "to-rut", addrs: both(netAllPeer, 2)}, o)
	if err != nil {
		return err
	}
	progress(o.Out, "veth pairs from rut to client, peer, as1, as3 and the backends")
	for _, ns := range l.Namespaces {
		if err := l.Do(ns.Name, func() error { return routerSettings(ns) }); err != nil {
			return fmt.Errorf("set up %s: %w", ns.Name, err)
		}
	}
	return join(
		l.Do("rut", protectedSettings),
		l.Do("client", func() error {
			return join(vlanOffloadOff("to-rut"), addTo("to-rut", netip.PrefixFrom(l.All.Blocked, 24)))
		}),
		l.Do("peer", func() error { return join(vlanOffloadOff("to-rut"), addTo("lo", knownAddrs()...)) }),
	)
}

// protectedSettings sets what protected services need (docs/filter-syn.md) in the calling thread's namespace.
func protectedSettings() error {
	return join(writeSysctl("ipv4/tcp_syncookies", "2"), writeSysctl("ipv4/tcp_timestamps", "2"))
}

// addTo adds addresses to an interface in the calling thread's namespace.
func addTo(name string, addrs ...netip.Prefix) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find the interface %s: %w", name, err)
	}
	return addAddrs(link, addrs)
}

// allInterfaces returns rut's interfaces, to which culvert is attached.
func (l *Lab) allInterfaces() (names []string) {
	for _, i := range l.Namespaces[0].Interfaces {
		names = append(names, i.Name)
	}
	return names
}

// configureAll writes the configuration files of all programs.
func (l *Lab) configureAll(ctx context.Context, o Options) error {
	l.ASes = l.planScion3(o)
	middle := &l.ASes[1]
	middle.NS, middle.Router, middle.RouterAPI = "rut", Culvert, l.All.Protected
	if err := l.configureASes(ctx, o); err != nil {
		return err
	}
	return l.writeAllConfigs(middle.RouterConfig)
}

// startAllASes starts all programs of the three ASes but rut's router, which is a part of culvert.
func (l *Lab) startAllASes(o Options) error {
	for _, as := range l.ASes {
		if as.NS != "rut" {
			if err := l.StartRouter(as.NS, as.Router); err != nil {
				return err
			}
		}
		if err := l.startServices(as); err != nil {
			return err
		}
		progress(o.Out, "%s: %s router, control, daemon, dispatcher", as.NS, as.Router)
	}
	return nil
}

// waitAll waits until traffic flows through each stage.
func (l *Lab) waitAll(ctx context.Context, w waiter) error {
	return firstError(
		func() error { return l.WaitPaths(ctx, w.timeout, w.out) },
		func() error { return l.waitMirror(ctx, w) },
		func() error { return l.waitRouted(ctx, w) },
		func() error { return l.waitFilter(ctx, w) },
		func() error { return l.waitVIPs(ctx, w, "peer", 1) },
		func() error { return l.waitAnswers(ctx, w, allBackends) },
	)
}

// waitRouted waits until client can ping addresses in the prefixes that peer announces.
func (l *Lab) waitRouted(ctx context.Context, w waiter) error {
	for _, target := range []netip.Addr{wellKnown4.target, wellKnown6.target} {
		err := w.until(ctx, "ping from client to "+target.String(), func(ctx context.Context) (bool, string) {
			if _, err := l.Run(ctx, "client", "ping", "-n", "-c", "1", "-W", "1", target.String()); err != nil {
				return false, oneLine(err.Error())
			}
			return true, "is answered"
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// waitFilter waits until the filter has dropped packets of the blocked address, and has answered a SYN to the protected service.
func (l *Lab) waitFilter(ctx context.Context, w waiter) error {
	err := w.until(ctx, "packets of "+l.All.Blocked.String(), func(ctx context.Context) (bool, string) {
		if _, err := l.Run(ctx, "client", "ping", "-n", "-c", "1", "-W", "1", "-I", l.All.Blocked.String(), wellKnown4.target.String()); err == nil {
			return false, "are answered"
		}
		n, err := l.ruleCount(ctx, "blocked")
		if err != nil {
			return false, oneLine(err.Error())
		}
		return n > 0, fmt.Sprintf("%d dropped by the filter", n)
	})
	if err != nil {
		return err
	}
	url := "http://" + l.All.Protected.String() + "/metrics"
	return w.until(ctx, url, func(ctx context.Context) (bool, string) {
		page, err := l.Run(ctx, "client", "curl", "-sS", "-m", "5", url)
		if err != nil {
			return false, oneLine(err.Error())
		}
		return strings.Contains(string(page), `reason="filter-synack"`), "answers through the filter"
	})
}

// ruleCount returns how many packets a rule of the filter in rut has counted.
func (l *Lab) ruleCount(ctx context.Context, name string) (uint64, error) {
	out, err := l.Run(ctx, "rut", l.Culvert, "filter", "list", "-j")
	if err != nil {
		return 0, err
	}
	var list struct {
		Rules []struct {
			Rule    string
			Packets uint64
		}
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return 0, fmt.Errorf("decode the list of the filter's rules: %w", err)
	}
	for _, r := range list.Rules {
		if r.Rule == name {
			return r.Packets, nil
		}
	}
	return 0, fmt.Errorf("the filter in rut has no rule %s", name)
}

// about describes a namespace of the topology all in a few words, "" if its AS says enough.
func (a *All) about(ns string) string {
	switch {
	case ns == "rut":
		return fmt.Sprintf("1-ff00:0:2, AS %d, BIRD, culvert", asRut)
	case ns == "peer":
		return fmt.Sprintf("AS %d, BIRD", asPeer)
	case ns[0] == 'b':
		return (&LB{}).about(ns)
	}
	return ""
}

// showAll returns the summary of a lab of the topology all, with commands to try.
func (l *Lab) showAll() string {
	var s strings.Builder
	fmt.Fprintf(&s, "rut is configured by %s and its drop-in %s; the VIPs are %s and %s\nto try:\n",
		l.All.Config, filepath.Base(filepath.Dir(l.All.DropIn))+"/"+filepath.Base(l.All.DropIn), lbVIP4, lbVIP6)
	try := func(ns, command string) { fmt.Fprintf(&s, "  culvert lab exec %s %s %s\n", l.Name, ns, command) }
	last := l.ASes[len(l.ASes)-1]
	try("as1h", "scion ping "+last.IA+","+last.Host.String()+" -c 3")
	try("client", "ping -c 3 "+wellKnown4.target.String())
	try("client", "ping -c 3 -W 1 -I "+l.All.Blocked.String()+" "+wellKnown4.target.String()+"   # blocked by the filter")
	try("client", "curl "+lbURL(lbVIP4))
	try("rut", "culvert status")
	try("rut", "curl -s http://"+allPage+"/v1/status")
	s.WriteString("change the file, or the drop-in, and then:\n")
	try("rut", "culvert check -c "+l.All.Config)
	try("rut", "culvert reload --dry-run")
	try("rut", "culvert reload")
	return s.String()
}
