// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"culvert/internal/host/trust"
	"culvert/internal/lb/bgpstate"
)

// Balance is what a load balancer asks of the host.
type Balance struct {
	VIPs     []BalanceVIP
	Backends []BalanceBackend
	// Sessions are the BGP sessions of the processes that run.
	Sessions []bgpstate.Session
	// Silent are the routers whose processes have told nothing of theirs.
	Silent []string
	// Source4 and Source6 tell whether outer headers have sources of a prefix.
	Source4, Source6 bool
}

// BalanceVIP is an address that packets are balanced for; Checked says that somebody asks its backends whether they live.
type BalanceVIP struct {
	Addr    netip.Addr
	Checked bool
}

// BalanceBackend is where packets go; Overhead is what they grow by, bytes.
type BalanceBackend struct {
	Addr     netip.Addr
	Overhead int
}

// clientMTU is what most clients send.
const clientMTU = 1500

// balanceFacts are the ways from here, by address.
type balanceFacts struct {
	ways map[netip.Addr]neighbour
	// mtu and strict are of the devices of the ways: strict says that sources are filtered by the way back.
	mtu    map[string]int
	strict map[string]bool
}

func readBalance(b *Balance) balanceFacts {
	f := balanceFacts{ways: make(map[netip.Addr]neighbour), mtu: make(map[string]int), strict: make(map[string]bool)}
	for _, v := range b.VIPs {
		f.ways[v.Addr] = readNeighbour(v.Addr)
	}
	for _, r := range b.Backends {
		f.ways[r.Addr] = readNeighbour(r.Addr)
	}
	for _, w := range f.ways {
		if l, err := netlink.LinkByName(w.device); err == nil {
			f.mtu[w.device] = l.Attrs().MTU
			f.strict[w.device] = max(sysctl("net/ipv4/conf/all/rp_filter"), sysctl("net/ipv4/conf/"+w.device+"/rp_filter")) == "1"
		}
	}
	return f
}

// devices are those that packets leave by to backends.
func (f balanceFacts) devices(b *Balance) (names []string) {
	for _, r := range b.Backends {
		if d := f.ways[r.Addr].device; d != "" && !f.ways[r.Addr].local && !slices.Contains(names, d) {
			names = append(names, d)
		}
	}
	slices.Sort(names)
	return names
}

// checkBalance looks at what a load balancer needs.
func checkBalance(f balanceFacts, b *Balance) []Finding {
	found := []Finding{checkVIPLocal(f, b), checkBackends(f, b)}
	for _, check := range []func(balanceFacts, *Balance) *Finding{checkVIPRoute, checkAnswers, checkSources} {
		if one := check(f, b); one != nil {
			found = append(found, *one)
		}
	}
	found = append(found, checkBGP(b.Sessions)...)
	for _, name := range b.Silent {
		found = append(found, Finding{
			Check: "bgp", Status: Warn, Command: "ls -l " + trust.RunDir + ", and see the log of the process",
			Finding: "what router " + name + " announces is not known: its process has told nothing, or not in the " + trust.RunDir + " that is seen here",
		})
	}
	return append(found, checkLbMTU(f, b)...)
}

// checkBGP says which neighbors are not told of VIPs, and why.
func checkBGP(sessions []bgpstate.Session) (found []Finding) {
	for _, s := range sessions {
		f := Finding{Check: "bgp", Finding: fmt.Sprintf("neighbor %s has been told of %d prefixes", s.Neighbor, len(s.Announced))}
		switch {
		case !s.Established():
			f.Status = Fail
			f.Finding = fmt.Sprintf("neighbor %s: the session is %s since %s: it is told of no VIP", s.Neighbor, s.State, s.Since.Format(time.TimeOnly))
			f.Command = fmt.Sprintf("ping -c 1 %s, and compare addresses, AS numbers and password on both sides", s.Neighbor)
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

// some names the first of several.
func some(addrs []netip.Addr) string {
	if len(addrs) == 1 {
		return addrs[0].String()
	}
	return fmt.Sprintf("%s (and %d more)", addrs[0], len(addrs)-1)
}

func checkVIPLocal(f balanceFacts, b *Balance) Finding {
	var here []netip.Addr
	for _, v := range b.VIPs {
		if f.ways[v.Addr].local && !slices.Contains(here, v.Addr) {
			here = append(here, v.Addr)
		}
	}
	if len(here) == 0 {
		return Finding{Check: "lb-vip", Finding: "no VIP is an address of this host"}
	}
	return Finding{
		Check: "lb-vip", Status: Fail, Command: fmt.Sprintf("ip address del %s dev lo", netip.PrefixFrom(here[0], here[0].BitLen())),
		Finding: some(here) + " is a VIP and an address of this host, which answers itself what is not balanced: checks never leave. It belongs on lo of the backends",
	}
}

func checkBackends(f balanceFacts, b *Balance) Finding {
	var none, unresolved, local []netip.Addr
	for _, r := range b.Backends {
		switch w := f.ways[r.Addr]; {
		case w.noRoute != nil:
			none = append(none, r.Addr)
		case w.local:
			local = append(local, r.Addr)
		case !w.resolved:
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
		w := f.ways[unresolved[0]]
		out.Status, out.Finding = Warn, "the link address of the next hop to backend "+some(unresolved)+" is not known: it gets no packets until it is"
		out.Command = fmt.Sprintf("ping -c 1 -I %s %s", w.device, w.nextHop)
	}
	return out
}

// checkVIPRoute looks for VIPs that checks cannot be sent to: the kernel has to believe in a way.
func checkVIPRoute(f balanceFacts, b *Balance) *Finding {
	var none []netip.Addr
	checked := false
	for _, v := range b.VIPs {
		checked = checked || v.Checked
		if v.Checked && f.ways[v.Addr].noRoute != nil && !slices.Contains(none, v.Addr) {
			none = append(none, v.Addr)
		}
	}
	switch {
	case !checked:
		return nil
	case len(none) == 0:
		return &Finding{Check: "lb-route", Finding: "checks can be sent: there is a route to each VIP"}
	}
	return &Finding{
		Check: "lb-route", Status: Fail, Finding: "no route to " + some(none) + ": the kernel sends no checks to its backends",
		Command: fmt.Sprintf("ip route add %s via GATEWAY", none[0]),
	}
}

// checkAnswers looks for devices that drop answers to checks: they come from the VIP, by the way that leads to a backend.
func checkAnswers(f balanceFacts, b *Balance) *Finding {
	for _, v := range b.VIPs {
		w := f.ways[v.Addr]
		if !v.Checked || !v.Addr.Is4() || w.noRoute != nil || w.local {
			continue
		}
		for _, d := range f.devices(b) {
			if f.strict[d] && d != w.device {
				return &Finding{
					Check: "lb-answers", Status: Warn, Interface: d, Command: "sysctl -w net.ipv4.conf." + d + ".rp_filter=2",
					Finding: fmt.Sprintf("rp_filter is strict: answers of backends to checks come from %s, to which the route is by %s, and are dropped", v.Addr, w.device),
				}
			}
		}
	}
	return nil
}

// checkSources looks at what spreads IPIP over the receive queues of a backend.
func checkSources(f balanceFacts, b *Balance) *Finding {
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
			"and a backend's card may put all IPIP packets into one receive queue: give a prefix, as 10.200.0.0/16",
	}
}

// checkLbMTU looks for ways on which full packets of clients do not fit, a finding for each device.
func checkLbMTU(f balanceFacts, b *Balance) (found []Finding) {
	for _, d := range f.devices(b) {
		overhead := 0
		for _, r := range b.Backends {
			if f.ways[r.Addr].device == d {
				overhead = max(overhead, r.Overhead)
			}
		}
		fits := f.mtu[d] - overhead
		if fits >= clientMTU {
			continue
		}
		found = append(found, Finding{
			Check: "lb-mtu", Status: Warn, Interface: d, Command: fmt.Sprintf("ip link set dev %s mtu %d", d, clientMTU+overhead),
			Finding: fmt.Sprintf("packets of clients fit up to %d bytes with what is put in front; larger ones are refused with \"too big\": raise the MTU here and on the "+
				"way, or have backends say a smaller MSS: ip route ... advmss %d", fits, fits-60),
		})
	}
	return found
}
