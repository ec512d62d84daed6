// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/route"
)

// Next hop objects of the tests with several next hops: 8 of each family, on the ports 1 and 2, and groups of them. Those of IPv6 are
// higher by family6.
const (
	firstMember    = 201
	members        = 8
	pairGroup      = 251
	largeGroup     = 252
	resilientGroup = 253
)

// memberWay is the gateway of a member in the syntax of ip(8).
func memberWay(v6 bool, n int) string {
	port, host := 1+n%2, firstHost+n/2
	if v6 {
		return fmt.Sprintf("via fd00:1:%d::%d dev p%d", port, host, port)
	}
	return fmt.Sprintf("via 10.1.%d.%d dev p%d", port, host, port)
}

// ownWays returns the next hops of a route with several, with their weights.
func ownWays(v6 bool, weights ...int) string {
	var b strings.Builder
	for n, weight := range weights {
		if weight > 0 {
			fmt.Fprintf(&b, " nexthop %s weight %d", memberWay(v6, n), weight)
		}
	}
	return b.String()
}

// otherWays are next hops whose gateways are not of the route's family, or have link-local addresses.
func otherWays(v6 bool) string {
	if v6 {
		return " nexthop via fe80::1:4 dev p1 weight 2 nexthop via fe80::2:5 dev p2"
	}
	return " nexthop via inet6 fd00:1:1::2 dev p1 nexthop via inet6 fe80::2:3 dev p2 weight 2"
}

// groupOf returns the members of a group with their weights.
func groupOf(v6 bool, weights ...int) string {
	var all []string
	for n, weight := range weights {
		if weight > 0 {
			all = append(all, fmt.Sprintf("%d,%d", object(v6, firstMember+n), weight))
		}
	}
	return strings.Join(all, "/")
}

func object(v6 bool, id int) int {
	if v6 {
		return id + family6
	}
	return id
}

// multiPrefix is prefix number n of the tests with several next hops. Number 5 is inside of number 1.
func multiPrefix(v6 bool, n int) string {
	switch {
	case v6 && n == 5:
		return "2001:db9:1:8000::/49"
	case v6:
		return fmt.Sprintf("2001:db9:%d::/48", n)
	case n == 5:
		return "44.1.128.0/17"
	}
	return fmt.Sprintf("44.%d.0.0/16", n)
}

// multiRoutes makes the objects, and routes by 2 and by 8 next hops, of their own and of groups.
func multiRoutes() string {
	var b strings.Builder
	for _, v6 := range []bool{false, true} {
		for n := range members {
			fmt.Fprintf(&b, "nexthop add id %d %s\n", object(v6, firstMember+n), memberWay(v6, n))
		}
		fmt.Fprintf(&b, "nexthop add id %d group %s\n", object(v6, pairGroup), groupOf(v6, 1, 3))
		fmt.Fprintf(&b, "nexthop add id %d group %s\n", object(v6, largeGroup), groupOf(v6, 1, 1, 2, 1, 3, 1, 1, 4))
		fmt.Fprintf(&b, "nexthop add id %d group %s type resilient buckets 16\n", object(v6, resilientGroup), groupOf(v6, 1, 1, 1, 1))
		fmt.Fprintf(&b, "route add %s%s\n", multiPrefix(v6, 0), ownWays(v6, 1, 2))
		fmt.Fprintf(&b, "route add %s%s\n", multiPrefix(v6, 1), ownWays(v6, 1, 1, 2, 1, 3, 1, 1, 4))
		fmt.Fprintf(&b, "route add %s nhid %d\n", multiPrefix(v6, 2), object(v6, pairGroup))
		fmt.Fprintf(&b, "route add %s nhid %d\n", multiPrefix(v6, 3), object(v6, largeGroup))
		fmt.Fprintf(&b, "route add %s nhid %d\n", multiPrefix(v6, 4), object(v6, resilientGroup))
		fmt.Fprintf(&b, "route add %s%s\n", multiPrefix(v6, 7), otherWays(v6))
	}
	return b.String()
}

// multiTrial is a pair of twins with routes by several next hops, and flows to them.
type multiTrial struct {
	*trial
	flows []*packet
}

func newMultiTrial(t *testing.T, seed uint64) *multiTrial {
	t.Helper()
	m := &multiTrial{trial: newTrial(t, scenario{name: "several next hops", simple: true, takes: flowPorts, lines: multiRoutes()}, seed,
		func(w *twin) *culvert { return attach(w, smallMirror) })}
	m.fast.startControlPlane(route.Options{})
	m.again, m.explain = nil, m.fast.explain
	return m
}

// flowsTo makes flows of TCP and UDP to prefixes of both families. Their packets are the same each time.
func (m *multiTrial) flowsTo(each int, prefixes ...int) []*packet {
	var all []*packet
	for _, v6 := range []bool{false, true} {
		for _, n := range prefixes {
			within := netip.MustParsePrefix(multiPrefix(v6, n))
			for range each {
				p := m.g.start("flow", 0)
				for p.frame == nil || p.flow != flowPorts {
					if v6 {
						h := m.g.head6(p)
						h.src, h.dst, h.hops = host6(0, m.g.host()), m.g.within(within), 64
						p.frame = h.build()
						continue
					}
					h := m.g.head4(p)
					h.src, h.dst, h.ttl = host4(0, m.g.host()), m.g.within(within), 64
					p.frame = h.build()
				}
				all = append(all, p)
			}
		}
	}
	return all
}

// round judges a packet of each flow, and returns how many the program has forwarded by what it remembers and by the kernel's answer.
func (m *multiTrial) round(flows []*packet) (remembered, asked uint64) {
	before := m.fast.reasons()
	for batch := range slices.Chunk(flows, batchSize) {
		outcomes := m.sendToKernel(batch)
		for _, p := range batch {
			m.judgePacket(p, outcomes[p.id], m.fast.fate(p, nil))
		}
	}
	after := m.fast.reasons()
	return after["fwd route"] - before["fwd route"], after["fwd route-fib"] - before["fwd route-fib"]
}

// awaitRemembered judges the flows until the kernel is asked for none of them any more.
func (m *multiTrial) awaitRemembered(what string) {
	m.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		remembered, asked := m.round(m.flows)
		if asked == 0 && remembered > 0 {
			return
		}
		if time.Now().After(end) {
			m.t.Fatalf("%s: the kernel is still asked for %d of %d packets", what, asked, asked+remembered)
		}
	}
}

// apply changes both twins. Meanwhile the fast path gets packets of the flows, so that it has reason to remember what is about to
// change.
func (m *multiTrial) apply(lines string, sysctls ...[2]string) {
	m.t.Helper()
	m.change(func(w *twin) error {
		w.try(lines)
		for _, s := range sysctls {
			w.set("net/"+s[0], s[1])
		}
		return nil
	})
}

// change is apply for what set does to a twin.
func (m *multiTrial) change(set func(w *twin) error) {
	m.t.Helper()
	m.kernel.enter()
	check(m.t, set(m.kernel))
	m.kernel.wire.drain() // what has waited for a neighbor
	m.fast.twin.enter()
	done := make(chan error, 1)
	go func() {
		done <- inNamespace(m.fast.twin, func() error { return set(m.fast.twin) })
	}()
	var until time.Time
	for until.IsZero() || time.Now().Before(until) {
		select {
		case err := <-done:
			check(m.t, err)
			until = time.Now().Add(stale)
		default:
		}
		m.fast.fate(m.flows[m.g.IntN(len(m.flows))], nil)
	}
}

// settle judges the flows after a change. The kernel does not notify of sysctls, so that it takes a moment until they are followed.
func (m *multiTrial) settle(what string, sysctls bool) {
	m.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		clear(m.counts)
		m.complaints = nil
		m.round(m.flows)
		if len(m.counts) == 0 || !sysctls || time.Now().After(end) {
			break
		}
	}
	m.complain(what)
}

func (m *multiTrial) complain(what string) {
	m.t.Helper()
	for _, key := range sortedKeys(m.counts) {
		m.t.Errorf("%s: %d times %s", what, m.counts[key], key)
	}
	for _, c := range m.complaints[:min(1, len(m.complaints))] {
		m.t.Log(c)
	}
	clear(m.counts)
	m.complaints = nil
}

// multiChange is a change of what the kernel chooses from or by.
type multiChange struct {
	name    string
	lines   func(v6 bool) string
	sysctls [][2]string
}

func onPrefix(format string, n int, more func(v6 bool) string) func(bool) string {
	return func(v6 bool) string {
		line := fmt.Sprintf(format, multiPrefix(v6, n))
		if more != nil {
			line += more(v6)
		}
		return line + "\n"
	}
}

func weighted(weights ...int) func(bool) string {
	return func(v6 bool) string { return ownWays(v6, weights...) }
}

func grouped(id int, weights ...int) func(bool) string {
	return func(v6 bool) string {
		return fmt.Sprintf("nexthop replace id %d group %s\n", object(v6, id), groupOf(v6, weights...))
	}
}

func onObject(format string, id int, more func(v6 bool) string) func(bool) string {
	return func(v6 bool) string {
		line := fmt.Sprintf(format, object(v6, id))
		if more != nil {
			line += more(v6)
		}
		return line + "\n"
	}
}

func byWay(n int) func(bool) string { return func(v6 bool) string { return memberWay(v6, n) } }

// onNeighbor is a command about neighbor number n, with what follows its address.
func onNeighbor(command string, n int, rest string) func(bool) string {
	return func(v6 bool) string {
		way := strings.Fields(memberWay(v6, n))
		return fmt.Sprintf("neigh %s %s %s dev %s\n", command, way[1], rest, way[3])
	}
}

var multiChanges = []multiChange{
	{name: "other weights", lines: onPrefix("route replace %s", 1, weighted(4, 1, 1, 1, 1, 2, 2, 1))},
	{name: "fewer next hops", lines: onPrefix("route replace %s", 1, weighted(1, 0, 1, 0, 1))},
	{name: "other next hops", lines: onPrefix("route replace %s", 0, weighted(0, 0, 0, 2, 1, 1))},
	{name: "another group", lines: grouped(largeGroup, 0, 0, 3, 1, 1, 0, 1, 1)},
	{name: "weights of a group", lines: grouped(pairGroup, 5, 2)},
	{name: "a member with another gateway", lines: onObject("nexthop replace id %d ", firstMember, byWay(5))},
	{name: "a member gone", lines: onObject("nexthop del id %d", firstMember+2, nil)},
	{name: "a neighbor with another address", lines: onNeighbor("replace", 1, "lladdr 02:00:00:00:55:01 nud permanent")},
	{name: "a longer prefix", lines: onPrefix("route add %s ", 5, byWay(7))},
	{name: "no longer prefix", lines: onPrefix("route del %s", 5, nil)},
	{name: "a longer prefix with the same next hops", lines: onPrefix("route add %s", 5, weighted(1, 0, 1, 0, 1))},
	{name: "a longer prefix with others", lines: onPrefix("route replace %s", 5, weighted(0, 1, 0, 1))},
	{name: "no longer prefix again", lines: onPrefix("route del %s", 5, nil)},
	{name: "a rule", lines: func(v6 bool) string {
		return fmt.Sprintf("rule add pref 500 to %s table 100\nroute add %s %s table 100\n", multiPrefix(v6, 3), multiPrefix(v6, 3), memberWay(v6, 6))
	}},
	{name: "no rule", lines: func(v6 bool) string {
		if v6 {
			return six + "rule del pref 500\n"
		}
		return "rule del pref 500\n"
	}},
	{name: "paths by ports", sysctls: [][2]string{{"ipv4/fib_multipath_hash_policy", "1"}, {"ipv6/fib_multipath_hash_policy", "1"}}},
	{name: "other weights, paths by ports", lines: onPrefix("route replace %s", 1, weighted(1, 2, 3, 4, 1, 1, 1, 1))},
	{name: "another group, paths by ports", lines: grouped(largeGroup, 1, 1, 0, 1, 1, 1, 1, 1)},
	{name: "paths by addresses", sysctls: [][2]string{{"ipv4/fib_multipath_hash_policy", "0"}, {"ipv6/fib_multipath_hash_policy", "0"}}},
}

// TestSeveralNextHops judges what the programs remember of the kernel's choices, while what the kernel chooses from and by changes.
func TestSeveralNextHops(t *testing.T) {
	m := newMultiTrial(t, 21)
	m.flows = m.flowsTo(40, 0, 1, 2, 3, 7)
	m.awaitRemembered("at first")
	m.complain("at first")
	for _, ch := range multiChanges {
		lines := ""
		if ch.lines != nil {
			lines = ch.lines(false) + ch.lines(true)
		}
		m.apply(lines, ch.sysctls...)
		m.settle(ch.name, ch.sysctls != nil)
		if ch.name != "a rule" { // while there is one, the kernel is asked
			m.awaitRemembered(ch.name)
			m.complain(ch.name + ", remembered")
		}
	}
}

// TestSeedOfSeveralNextHops changes the seed of the kernel's hash, which Linux has since 6.11.
func TestSeedOfSeveralNextHops(t *testing.T) {
	m := newMultiTrial(t, 22)
	m.flows = m.flowsTo(40, 1, 3)
	m.awaitRemembered("at first")
	const seed = "ipv4/fib_multipath_hash_seed"
	if _, err := os.Stat("/proc/sys/net/" + seed); err != nil {
		// The twins of older kernels have the same seed, and nothing to change.
		m.complain("at first")
		return
	}
	for _, value := range []string{"1", "77"} {
		m.apply("", [2]string{seed, value})
		m.settle("seed "+value, true)
		m.awaitRemembered("seed " + value)
		m.complain("seed " + value + ", remembered")
	}
}

// TestMembersOfSeveralDie takes neighbors and a port away. The kernel then chooses from what is left.
func TestMembersOfSeveralDie(t *testing.T) {
	m := newMultiTrial(t, 23)
	m.flows = m.flowsTo(40, 0, 1, 2, 3, 7)
	m.awaitRemembered("at first")
	gone := onNeighbor("del", 3, "")
	m.apply(gone(false) + gone(true))
	m.settle("a neighbor gone", false)
	// What stood for it in the mirror stands for another neighbor after a while.
	time.Sleep(1500 * time.Millisecond)
	var more strings.Builder
	for host := range 40 {
		fmt.Fprintf(&more, "neigh replace %v lladdr %s dev p1 nud permanent\n", host4(1, 150+host), mac(hostMAC(1, 150+host)))
	}
	m.apply(more.String())
	m.settle("other neighbors", false)
	back := onNeighbor("replace", 3, "lladdr "+mac(hostMAC(2, firstHost+1))+" nud permanent")
	m.apply(back(false) + back(true))
	m.settle("the neighbor back", false)
	m.awaitRemembered("the neighbor back")
	m.apply("link set p1 down\n")
	m.settle("a port down", false)
	m.awaitRemembered("a port down")
	m.complain("a port down, remembered")

	var again strings.Builder
	m.kernel.addresses(&again, 1)
	m.apply(again.String())
	for _, w := range []*twin{m.kernel, m.fast.twin} {
		w.enter()
		w.awaitUp(1)
	}
	m.apply(again.String()) // what needed the port to be up
	m.settle("the port up again", false)
	m.awaitRemembered("the port up again")
	m.complain("the port up again, remembered")
}

// ignoreDown are the settings of a device by which the kernel does not choose next hops while it has no carrier.
func ignoreDown(device, value string) [][2]string {
	return [][2]string{
		{"ipv4/conf/" + device + "/ignore_routes_with_linkdown", value}, {"ipv6/conf/" + device + "/ignore_routes_with_linkdown", value},
	}
}

// TestSeveralWithoutCarrier takes the carrier of a port away, by which some next hops are. A setting says whether the kernel chooses
// them nevertheless.
func TestSeveralWithoutCarrier(t *testing.T) {
	m := newMultiTrial(t, 25)
	m.flows = m.flowsTo(40, 0, 1, 2, 3, 7)
	m.awaitRemembered("at first")
	carrier := func(what string, on bool) {
		t.Helper()
		m.change(func(w *twin) error { return w.setCarrier(1, on) })
		m.settle(what, false)
		m.awaitRemembered(what)
		m.complain(what + ", remembered")
	}
	setting := func(what, value string) {
		t.Helper()
		m.apply("", ignoreDown("p1", value)...)
		m.settle(what, false)
		m.awaitRemembered(what)
		m.complain(what + ", remembered")
	}
	setting("next hops without a carrier are left out", "1")
	carrier("no carrier, left out", false)
	setting("no carrier, not left out", "0")
	setting("no carrier, left out again", "1")
	carrier("a carrier again", true)
	setting("next hops without a carrier are not left out", "0")
	carrier("no carrier", false)
	carrier("a carrier at last", true)
}

// TestSeveralByAnotherDevice is about a route of which one next hop is by a device without the program. What becomes of that device
// decides which flows the others get.
func TestSeveralByAnotherDevice(t *testing.T) {
	m := newMultiTrial(t, 26)
	lines := "link add d0 type veth peer name d1\nlink set d1 up\nlink set d0 up\n" +
		"addr add 10.9.0.1/24 dev d0\naddr add fd00:9::1/64 nodad dev d0\n" +
		"neigh add 10.9.0.2 lladdr 02:00:00:00:09:02 dev d0 nud permanent\nneigh add fd00:9::2 lladdr 02:00:00:00:09:02 dev d0 nud permanent\n" +
		fmt.Sprintf("route add %s nexthop via 10.9.0.2 dev d0 nexthop %s\n", multiPrefix(false, 6), memberWay(false, 0)) +
		fmt.Sprintf("route add %s nexthop via fd00:9::2 dev d0 nexthop %s\n", multiPrefix(true, 6), memberWay(true, 0))
	m.flows = m.flowsTo(100, 6)
	m.apply(lines)
	for _, step := range []struct {
		what, lines string
		sysctls     [][2]string
	}{
		{what: "at first"},
		{what: "left out without a carrier", sysctls: ignoreDown("d0", "1")},
		{what: "no carrier", lines: "link set d1 down\n"},
		{what: "a carrier again", lines: "link set d1 up\n"},
		{what: "no device", lines: "link del d0\n"},
	} {
		m.apply(step.lines, step.sysctls...)
		m.settle(step.what, false)
		m.awaitRemembered(step.what)
		m.complain(step.what + ", remembered")
	}
}

// TestChoicesLeftToTheKernel checks that the kernel is asked each time where its choice depends on more than the flow and what it
// chooses from.
func TestChoicesLeftToTheKernel(t *testing.T) {
	m := newMultiTrial(t, 24)
	m.flows = m.flowsTo(40, 1)
	m.awaitRemembered("at first")
	resilient := m.flowsTo(40, 4)
	for range 3 {
		if remembered, asked := m.round(resilient); remembered != 0 || asked == 0 {
			t.Errorf("resilient groups: %d packets by what was remembered, %d by the kernel's answer", remembered, asked)
		}
	}
	m.complain("resilient groups")
	m.apply("", [2]string{useNeighbors, "1"})
	v4 := m.flows[:len(m.flows)/2]
	check(t, waitFor(t, "choices by the states of neighbors", func() bool {
		m.round(v4)
		remembered, _ := m.round(v4)
		return remembered == 0
	}))
	m.apply("", [2]string{useNeighbors, "0"})
	m.awaitRemembered("no choices by the states of neighbors")
	clear(m.counts)
	for _, policy := range []string{"2", "3"} {
		m.apply("", [2]string{"ipv4/fib_multipath_hash_policy", policy}, [2]string{"ipv6/fib_multipath_hash_policy", policy})
		check(t, waitFor(t, "policy "+policy, func() bool {
			remembered, asked := m.round(m.flows)
			return remembered == 0 && asked == 0
		}))
	}
}
