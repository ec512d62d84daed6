// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// fadingPlane is an adopted fast path on the interfaces that a test sets.
type fadingPlane struct {
	printingPlane
	attached []string
}

func (p *fadingPlane) Adopted() bool { return true }

func (p *fadingPlane) Attached() []string { return p.attached }

func (p *fadingPlane) AttachedIndexes() []int { return nil }

func TestJournal(t *testing.T) {
	r, err := Load(writeTOML(t, "v4", "br1", ""))
	check(t, err)
	plane := &fadingPlane{attached: []string{"cvs0", "cvs1"}}
	here := map[netip.Addr]bool{}
	for _, at := range r.Sockets() {
		here[at.Addr()] = true
	}
	var unreadable error
	j := newJournal(r, plane)
	j.addresses = func() (map[netip.Addr]bool, error) { return here, unreadable }
	var lines []string
	j.info = func(message string, fields ...any) {
		lines = append(lines, fmt.Sprint(append([]any{message}, fields...)))
	}
	expect := func(step string, want ...string) {
		t.Helper()
		if !slices.Equal(lines, want) {
			t.Errorf("%s: logged\n%q, want\n%q", step, lines, want)
		}
		lines = nil
	}
	j.start()
	expect("start", "[Fast path attached interfaces cvs0,cvs1 mode generic origin adopted]",
		"[Fast path key index 0 id 00112233]")

	for _, link := range []int{1, 2, 3, 4} {
		j.nextHop(link, true)
	}
	j.nextHop(3, false)
	expect("next hops in time")
	j.endWait()
	expect("next hops late",
		"[Link has no next hop: its packets take the slow path link sibling->10.0.0.3:30042 remote 10.0.0.3:30042]",
		"[Link has no next hop: its packets take the slow path link 65535 remote 192.0.2.10:50001]")
	j.nextHop(5, true)
	j.nextHop(5, false)
	j.nextHop(5, true)
	expect("next hop found", "[Link has a next hop now link 65535]")

	j.look()
	expect("nothing new")
	plane.attached = []string{"cvs0"}
	own := netip.MustParseAddr("192.0.2.5")
	delete(here, own)
	unreadable = errors.New("no")
	j.look()
	expect("addresses unreadable, and an interface detached, which the node logs")
	unreadable = nil
	j.look()
	j.look()
	expect("address gone", "[No interface has the router's own address any more address 192.0.2.5]")
	here[own] = true
	j.look()
	j.look()
	expect("address back", "[The router's own address is back address 192.0.2.5]")
}
