// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/host/trust"
	"culvert/internal/lb/bgpstate"
	"culvert/internal/lb/peerstate"
)

// LB is what the running or configured load balancers need from the host.
type LB struct {
	VIPs     []LBVIP
	Backends []LBBackend
	// Sessions are the BGP sessions of all running processes.
	Sessions []bgpstate.Session
	// Unreported names the routers whose processes have not published the state of their BGP sessions.
	Unreported []string
	// Peers is what is wrong with the exchange of flows of all running processes. Exchanges tells whether one has any.
	Peers     []peerstate.Problem
	Exchanges bool
	// Source4 and Source6 tell whether the sources of outer IPv4 and IPv6 headers are spread over a prefix.
	Source4, Source6 bool
}

// LBVIP is the address of a VIP. Checked tells whether its backends are health-checked.
type LBVIP struct {
	Addr    netip.Addr
	Checked bool
}

// LBBackend is the address of a backend. Overhead is the length in bytes of what the encapsulation adds to a packet.
type LBBackend struct {
	Addr     netip.Addr
	Overhead int
}

// clientMTU is the MTU of most clients in bytes.
const clientMTU = 1500

// lbFacts are the facts that the checks of load balancers look at.
type lbFacts struct {
	// routes has the route and the neighbor of each VIP and backend.
	routes map[netip.Addr]neighbor
	// own has the addresses of this host that are VIPs.
	own map[netip.Addr]ownAddress
	// mtu is the MTU in bytes of each device that a route leaves by. strict tells whether rp_filter is strict on it.
	mtu    map[string]int
	strict map[string]bool
}

// ownAddress is an address of this host with its prefix length, as it stands at a device.
type ownAddress struct {
	prefix netip.Prefix
	device string
}

// readOwnAddress finds an address of this host. It reports false if none of its devices has the address, which then comes
// from a route of type local.
func readOwnAddress(addr netip.Addr) (ownAddress, bool) {
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return ownAddress{}, false
	}
	for _, a := range all {
		if ip, ok := netip.AddrFromSlice(a.IP); !ok || ip.Unmap() != addr.Unmap() {
			continue
		}
		if l, err := netlink.LinkByIndex(a.LinkIndex); err == nil {
			bits, _ := a.Mask.Size()
			return ownAddress{prefix: netip.PrefixFrom(addr.Unmap(), bits), device: l.Attrs().Name}, true
		}
	}
	return ownAddress{}, false
}

func readLB(b *LB) lbFacts {
	f := lbFacts{
		routes: make(map[netip.Addr]neighbor), own: make(map[netip.Addr]ownAddress), mtu: make(map[string]int), strict: make(map[string]bool),
	}
	for _, v := range b.VIPs {
		f.routes[v.Addr] = readNeighbor(v.Addr)
		if own, ok := readOwnAddress(v.Addr); ok {
			f.own[v.Addr] = own
		}
	}
	for _, r := range b.Backends {
		f.routes[r.Addr] = readNeighbor(r.Addr)
	}
	for _, n := range f.routes {
		if l, err := netlink.LinkByName(n.device); err == nil {
			f.mtu[n.device] = l.Attrs().MTU
			f.strict[n.device] = rpFilter(n.device) == "1"
		}
	}
	return f
}

// devices returns the devices by which packets leave to backends, sorted.
func (f lbFacts) devices(b *LB) (names []string) {
	for _, r := range b.Backends {
		if d := f.routes[r.Addr].device; d != "" && !f.routes[r.Addr].local && !slices.Contains(names, d) {
			names = append(names, d)
		}
	}
	slices.Sort(names)
	return names
}

// checkLB makes all checks of load balancers.
func checkLB(f lbFacts, b *LB) []Finding {
	found := []Finding{checkVIPLocal(f, b), checkBackends(f, b)}
	for _, check := range []func(lbFacts, *LB) *Finding{checkVIPRoute, checkAnswers, checkSources} {
		if one := check(f, b); one != nil {
			found = append(found, *one)
		}
	}
	found = append(found, checkBGP(b.Sessions)...)
	for _, name := range b.Unreported {
		found = append(found, Finding{
			Check: "bgp", Status: Warn, Command: "ls -l " + trust.RunDir + ", and see the log of the process",
			Finding: "what data plane " + name + " announces is not known: its process has not published its BGP sessions in the " + trust.RunDir + " of this mount namespace",
		})
	}
	found = append(found, checkPeers(b)...)
	return append(found, checkLBMTU(f, b)...)
}

// nameRunning says in findings that they are about the load balancers that run, of which the configuration knows nothing.
func nameRunning(found []Finding) {
	for n := range found {
		found[n].Finding = "of what runs, not of the file: " + found[n].Finding
	}
}

// checkBGP has a finding for each BGP session.
func checkBGP(sessions []bgpstate.Session) (found []Finding) {
	for _, s := range sessions {
		f := Finding{Check: "bgp", Finding: fmt.Sprintf("prefixes announced to neighbor %s: %d", s.Neighbor, len(s.Announced))}
		switch {
		case !s.Established():
			f.Status = Fail
			f.Finding = fmt.Sprintf("neighbor %s: the session has been %s since %s: no VIP is announced to it", s.Neighbor, s.State, s.Since.Format(time.TimeOnly))
			f.Command = fmt.Sprintf("ping -c 1 %s, and compare addresses, AS numbers and password on both sides", s.Neighbor)
			if strings.Contains(s.Error, unix.EADDRNOTAVAIL.Error()) {
				f.Command = "ip address show, and compare with local_address in the configuration"
			}
		case s.Error != "":
			f.Status = Warn
		}
		if s.Error != "" {
			f.Finding += ": " + s.Error
		}
		found = append(found, f)
	}
	return found
}

// checkPeers has a finding for each thing that is wrong with the exchange of flows.
func checkPeers(b *LB) (found []Finding) {
	for _, p := range b.Peers {
		f := Finding{Check: "lb-peers", Status: Warn, Finding: p.Text, Command: p.Command}
		if p.Severe {
			f.Status = Fail
		}
		found = append(found, f)
	}
	if b.Exchanges && len(found) == 0 {
		found = append(found, Finding{Check: "lb-peers", Finding: "flows are exchanged with all peers of [lb.peers]"})
	}
	return found
}

// some names the first of the addresses and counts the others.
func some(addrs []netip.Addr) string {
	if len(addrs) == 1 {
		return addrs[0].String()
	}
	return fmt.Sprintf("%s (and %d more)", addrs[0], len(addrs)-1)
}

func checkVIPLocal(f lbFacts, b *LB) Finding {
	var here []netip.Addr
	for _, v := range b.VIPs {
		if f.routes[v.Addr].local && !slices.Contains(here, v.Addr) {
			here = append(here, v.Addr)
		}
	}
	if len(here) == 0 {
		return Finding{Check: "lb-vip", Finding: "no VIP is an address of this host"}
	}
	command := fmt.Sprintf("ip route show table local %s", here[0])
	if own, ok := f.own[here[0]]; ok {
		command = fmt.Sprintf("ip address del %s dev %s", own.prefix, own.device)
		if !own.prefix.IsSingleIP() {
			command = "give the VIP another address: this one is that of " + own.device
		}
	}
	return Finding{
		Check: "lb-vip", Status: Fail, Command: command,
		Finding: some(here) + " is a VIP and an address of this host: the host answers what is not balanced, and checks never leave it. The address belongs on lo of the backends",
	}
}

func checkBackends(f lbFacts, b *LB) Finding {
	var none, unresolved, local []netip.Addr
	for _, r := range b.Backends {
		switch n := f.routes[r.Addr]; {
		case n.noRoute != nil:
			none = append(none, r.Addr)
		case n.local:
			local = append(local, r.Addr)
		case !n.resolved:
			unresolved = append(unresolved, r.Addr)
		}
	}
	out := Finding{Check: "lb-backend", Finding: "the next hops of all backends are known"}
	switch {
	case len(none) > 0:
		out.Status, out.Finding = Fail, "no route to backend "+some(none)+": it gets no packets"
		out.Command = fmt.Sprintf("ip route add %s via GATEWAY", none[0])
	case len(local) > 0:
		out.Status, out.Finding = Fail, "backend "+some(local)+" is this host: a balancer cannot be its own backend"
		out.Command = "ip -brief address"
	case len(unresolved) > 0:
		n := f.routes[unresolved[0]]
		out.Status, out.Finding = Warn, "the link address of the next hop to backend "+some(unresolved)+" is not resolved: the backend gets no packets until it is"
		out.Command = fmt.Sprintf("ping -c 1 -I %s %s", n.device, n.nextHop)
	}
	return out
}

// checkVIPRoute looks for VIPs without a route. Checks are sent to the VIP's address, and the kernel sends them only if it
// has a route there.
func checkVIPRoute(f lbFacts, b *LB) *Finding {
	var none []netip.Addr
	checked := false
	for _, v := range b.VIPs {
		checked = checked || v.Checked
		if v.Checked && f.routes[v.Addr].noRoute != nil && !slices.Contains(none, v.Addr) {
			none = append(none, v.Addr)
		}
	}
	switch {
	case !checked:
		return nil
	case len(none) == 0:
		return &Finding{Check: "lb-route", Finding: "there is a route to each VIP, so checks can be sent"}
	}
	return &Finding{
		Check: "lb-route", Status: Fail, Finding: "no route to " + some(none) + ": the kernel sends no checks to its backends",
		Command: fmt.Sprintf("ip route add %s via GATEWAY", none[0]),
	}
}

// checkAnswers looks for devices that drop answers to checks. An answer has the VIP as its source and comes in by the device
// that leads to the backend. A strict rp_filter drops it there if the route to the VIP is by another device.
func checkAnswers(f lbFacts, b *LB) *Finding {
	for _, v := range b.VIPs {
		route := f.routes[v.Addr]
		if !v.Checked || !v.Addr.Is4() || route.noRoute != nil || route.local {
			continue
		}
		for _, d := range f.devices(b) {
			if f.strict[d] && d != route.device {
				return &Finding{
					Check: "lb-answers", Status: Warn, Interface: d, Command: "sysctl -w net.ipv4.conf." + d + ".rp_filter=2",
					Finding: fmt.Sprintf("rp_filter is strict: it drops the answers of backends to checks, which have the source %s, because the route there is by %s", v.Addr, route.device),
				}
			}
		}
	}
	return nil
}

// checkSources warns when all outer headers have the same source: a backend's device then puts them into one receive queue.
func checkSources(f lbFacts, b *LB) *Finding {
	var missing []string
	for _, r := range b.Backends {
		key := "source6"
		if r.Addr.Is4() {
			key = "source4"
		}
		if r.Overhead == 0 || r.Addr.Is4() && b.Source4 || r.Addr.Is6() && b.Source6 || slices.Contains(missing, key) {
			continue
		}
		missing = append(missing, key)
	}
	if len(missing) == 0 {
		return nil
	}
	return &Finding{
		Check: "lb-source", Status: Warn, Finding: strings.Join(missing, " and ") + " not set in [lb]: outer headers come from one address of this host, " +
			"and a backend's device may put all IPIP packets into one receive queue: set a prefix, such as 10.200.0.0/16",
	}
}

// checkLBMTU has a finding for each device whose MTU is too small for full packets of clients once they are encapsulated.
func checkLBMTU(f lbFacts, b *LB) (found []Finding) {
	for _, d := range f.devices(b) {
		overhead := 0
		for _, r := range b.Backends {
			if f.routes[r.Addr].device == d {
				overhead = max(overhead, r.Overhead)
			}
		}
		fits := f.mtu[d] - overhead
		if fits >= clientMTU {
			continue
		}
		found = append(found, Finding{
			Check: "lb-mtu", Status: Warn, Interface: d, Command: fmt.Sprintf("ip link set dev %s mtu %d", d, clientMTU+overhead),
			Finding: fmt.Sprintf("packets of clients fit up to %d bytes once they are encapsulated; larger ones are refused with \"too big\": raise the MTU here and on the "+
				"path to the backends, or have backends announce a smaller MSS: ip route ... advmss %d", fits, fits-60),
		})
	}
	return found
}
