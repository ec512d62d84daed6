// SPDX-License-Identifier: Apache-2.0

package routeplane

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/route/lpm"
	"culvert/internal/testbed"
)

// choiceBed is a router with routes of both families by two of three neighbors on east, of which the kernel chooses. The test is its
// control plane.
type choiceBed struct {
	*routeBed
	tables map[bool]*lpm.Table
}

// Numbers in the mirror of a choiceBed.
const (
	severalHops = 20
	// neighborHop is that of the first neighbor, whose address and MAC address end in 9. Those of IPv6 are higher by 10.
	neighborHop = 30
)

// severalTo are the destinations of the routes, and what makes the kernel decide otherwise: a longer prefix by the third neighbor.
var severalTo = map[bool]struct{ prefix, longer, to string }{
	false: {"44.0.0.0/8", "44.1.0.0/16", "44.1.2.3"},
	true:  {"2001:db9::/32", "2001:db9:1::/48", "2001:db9:1::7"},
}

// newChoiceBed makes one that remembers so many choices, 0 for as many as a real one.
func newChoiceBed(t *testing.T, choices int) *choiceBed {
	b := &choiceBed{routeBed: newRouteBed(t, Options{Blocks4: 64, Blocks6: 64, choices: choices}), tables: make(map[bool]*lpm.Table)}
	for v6, net := range map[bool]string{false: "10.2.0.%d", true: "fd02::%x"} {
		for n := range 3 {
			addr, dst := fmt.Sprintf(net, 9+n), [6]byte{2, 0, 0, 0, 0, byte(9 + n)}
			testbed.IP(t, fmt.Sprintf("neigh replace %s lladdr 02:00:00:00:00:%02x dev east nud permanent", addr, 9+n))
			number := uint32(neighborHop + n)
			if v6 {
				number += 10
			}
			b.must(b.plane.SetHop(number, Hop{Action: Forward, Dev: b.east.Index, Port: b.east.Index, MTU: 1500,
				SrcMAC: [6]byte(b.east.HardwareAddr), DstMAC: dst}))
			b.must(b.plane.SetNeighbor(Neighbor{Dev: b.east.Index, Addr: netip.MustParseAddr(addr)}, number))
		}
		testbed.IP(t, fmt.Sprintf("route add %s nexthop via "+net+" nexthop via "+net, severalTo[v6].prefix, 9, 10))
	}
	root4, blocks4 := b.plane.Table4()
	root6, blocks6 := b.plane.Table6()
	b.tables[false], b.tables[true] = lpm.New(root4, blocks4, 32), lpm.New(root6, blocks6, 128)
	b.several()
	for v6, table := range b.tables {
		table.Insert(netip.MustParsePrefix(severalTo[v6].prefix), severalHops)
	}
	b.must(b.plane.SetCurrent(1<<62, 1<<62))
	return b
}

// several writes the next hop of several again, which says that something has changed.
func (b *choiceBed) several() { b.must(b.plane.SetHop(severalHops, Hop{Action: Ask, Remember: true})) }

// send sends a packet of flow number n, and returns by which neighbor it leaves.
func (b *choiceBed) send(v6 bool, n int, reason string) byte {
	b.t.Helper()
	src := fmt.Sprintf("10.1.0.%d", 2+n)
	if v6 {
		src = fmt.Sprintf("fd01::%x", 2+n)
	}
	return b.expect(b.packet(src, severalTo[v6].to, 0, 64), "fwd "+reason)[5]
}

const choiceFlows = 32

// TestChoiceForgotten checks that an answer of the kernel is used again only while nothing has changed: neither the mirror, nor what
// the kernel chooses from.
func TestChoiceForgotten(t *testing.T) {
	b := newChoiceBed(t, 0)
	for _, v6 := range []bool{false, true} {
		first := make([]byte, choiceFlows)
		seen := map[byte]int{}
		for n := range first {
			first[n] = b.send(v6, n, "route-fib")
			seen[first[n]]++
		}
		if len(seen) != 2 || seen[9] == 0 || seen[10] == 0 {
			t.Fatalf("IPv6 %v: by neighbors %v, want two", v6, seen)
		}
		same := func(what, reason string) {
			t.Helper()
			for n, want := range first {
				if got := b.send(v6, n, reason); got != want {
					t.Errorf("IPv6 %v, %s: flow %d by neighbor %d, want %d", v6, what, n, got, want)
				}
			}
		}
		same("remembered", "route")
		b.several()
		same("asked again", "route-fib")
		same("remembered again", "route")

		// The kernel decides otherwise for a while, and the control plane is late to notice.
		b.plane.Touch(v6, 0, Slots)
		b.plane.Settle()
		longer := severalTo[v6].longer
		third := map[bool]string{false: "10.2.0.11", true: "fd02::b"}[v6]
		testbed.IP(t, fmt.Sprintf("route add %s via %s", longer, third))
		for n := range first {
			if got := b.send(v6, n, "route-fib"); got != 11 {
				t.Errorf("IPv6 %v: flow %d by neighbor %d while the kernel has a longer prefix", v6, n, got)
			}
		}
		testbed.IP(t, "route del "+longer)
		b.plane.Touch(v6, 0, Slots)
		same("while the mirror is about to change", "route-fib")
		same("nothing remembered meanwhile", "route-fib")
		b.plane.Settle()
		same("after the longer prefix", "route-fib")
		same("remembered after the longer prefix", "route")
	}
}

// TestChoiceNotRemembered checks which packets the kernel is asked for each time.
func TestChoiceNotRemembered(t *testing.T) {
	b := newChoiceBed(t, 0)
	for _, v6 := range []bool{false, true} {
		asksTwice := func() {
			t.Helper()
			b.send(v6, 0, "route-fib")
			b.send(v6, 0, "route-fib")
		}
		b.must(b.plane.SetHop(severalHops, Hop{Action: Ask}))
		asksTwice() // not to be remembered
		b.several()
		b.must(b.plane.SetCurrent(0, 0))
		asksTwice() // the mirror is not current
		b.must(b.plane.SetCurrent(1<<62, 1<<62))
		b.send(v6, 0, "route-fib")
		b.send(v6, 0, "route")
		// The neighbor's next hop has another meaning, or none.
		for n := range uint32(3) {
			number := neighborHop + n
			if v6 {
				number += 10
			}
			b.must(b.plane.SetHop(number, Hop{}))
		}
		asksTwice()
	}
}

// TestChoicesOfManyFlows checks that as many flows as are promised are remembered at the same time.
func TestChoicesOfManyFlows(t *testing.T) {
	b := newChoiceBed(t, 0)
	const flows = maxChoices / 4
	began := time.Now()
	asked := make(map[bool]uint64)
	for _, again := range []bool{false, true} {
		before := b.count("fwd route-fib")
		for n := range flows {
			src := fmt.Sprintf("10.%d.%d.%d", 1+n>>16, n>>8&255, n&255)
			if n&255 == 255 || src == "10.1.0.1" {
				continue
			}
			_, _, err := b.inst.TestRun(b.packet(src, severalTo[false].to, 0, 64), "west")
			b.must(err)
		}
		asked[again] = b.count("fwd route-fib") - before
	}
	t.Logf("asked for %d of %d packets of known flows, in %v", asked[true], asked[false], time.Since(began))
	if asked[false] < flows/2 || asked[true] > flows/25 {
		t.Errorf("%d flows asked the kernel, and %d of them again", asked[false], asked[true])
	}
}

// TestChoicesKeepTheirPlaces changes what the kernel chooses from again and again, faster than places become free: each flow takes the place
// that it had.
func TestChoicesKeepTheirPlaces(t *testing.T) {
	b := newChoiceBed(t, choiceWays)
	for _, v6 := range []bool{false, true} {
		for change := range 5 {
			for _, reason := range []string{"route-fib", "route"} {
				for n := range choiceWays {
					b.send(v6, n, reason)
				}
			}
			if change%2 == 0 {
				b.several()
				continue
			}
			b.plane.Touch(v6, 0, Slots)
			b.plane.Settle()
		}
		b.resetChoices()
	}
}

// resetChoices empties the only bucket.
func (b *choiceBed) resetChoices() { b.must(b.choices().Put(uint32(0), [choiceWays]choiceElement{})) }

func (b *choiceBed) choices() *ebpf.Map { return b.inst.Map(bpfobj.PipelineMapRouteChoices) }

// choiceElement is struct route_choice of bpf/route/choice.h.
type choiceElement struct{ Check, Rest uint64 }

// TestChoiceOfTwoWriters mixes the words of two flows' choices, as two programs may that write an element at the same time: the mixture is
// nobody's.
func TestChoiceOfTwoWriters(t *testing.T) {
	b := newChoiceBed(t, choiceWays)
	by := make(map[byte]int) // a flow by each neighbor
	for n := 0; len(by) < 2; n++ {
		by[b.send(false, n, "route-fib")] = n
		if len(by) < 2 {
			b.resetChoices()
		}
	}
	var first int
	for _, n := range by {
		first = n
		break
	}
	b.resetChoices()
	for _, n := range by {
		b.send(false, n, "route-fib")
		b.send(false, n, "route")
	}
	var bucket [choiceWays]choiceElement
	b.must(b.choices().Lookup(uint32(0), &bucket))
	var used []int
	for n, e := range bucket {
		if e.Check != 0 {
			used = append(used, n)
		}
	}
	if len(used) != 2 {
		t.Fatalf("%d elements are in use, want 2: %x", len(used), bucket)
	}
	one, other := used[0], used[1]
	bucket[one].Rest, bucket[other].Rest = bucket[other].Rest, bucket[one].Rest
	b.must(b.choices().Put(uint32(0), bucket))
	for _, n := range by {
		b.send(false, n, "route-fib")
	}
	b.send(false, first, "route")
}

// TestChoicesInUse has one flow more than places: it takes none from flows that are in use, and one from a flow that is not.
func TestChoicesInUse(t *testing.T) {
	b := newChoiceBed(t, choiceWays)
	var five []string
	for n := range choiceWays + 1 {
		five = append(five, fmt.Sprintf("11.0.0.%d", 1+n))
	}
	asked := func(flows []string) uint64 {
		before := b.count("fwd route-fib")
		for _, src := range flows {
			_, _, err := b.inst.TestRun(b.packet(src, severalTo[false].to, 0, 64), "west")
			b.must(err)
		}
		return b.count("fwd route-fib") - before
	}
	tick := func() int64 {
		var now unix.Timespec
		b.must(unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now))
		return now.Nano() >> usedShift
	}
	for {
		for at := tick(); tick() == at; {
			time.Sleep(time.Millisecond)
		}
		at := tick()
		asked(five[:choiceWays])
		all, last := asked(five), asked(five[choiceWays:])
		if tick() != at {
			continue // whether a flow is in use is known to about a second
		}
		if all != 1 || last != 1 {
			t.Fatalf("%d of five flows have asked, and the fifth %d times again", all, last)
		}
		for tick() < at+2 {
			time.Sleep(time.Millisecond)
		}
		asked(five[choiceWays:])
		if last = asked(five[choiceWays:]); last != 0 {
			t.Errorf("the fifth flow asks when the others are idle")
		}
		return
	}
}
