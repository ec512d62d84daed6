// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"culvert/internal/scion/scionplane"
)

// ruleLog is told rules.
type ruleLog struct {
	links []int
	rules map[int]scionplane.Accept
}

func (r *ruleLog) SetLinkAccept(link int, a scionplane.Accept) error {
	r.links = append(r.links, link)
	if r.rules == nil {
		r.rules = map[int]scionplane.Accept{}
	}
	r.rules[link] = a
	return nil
}

// testGate has an internal link, two external ones and a sibling, in that order.
func testGate(internal string) (*gate, *ruleLog, *[]string) {
	r := &Router{}
	for _, l := range []struct {
		name, local, remote string
		scope               scionplane.LinkScope
	}{
		{"internal", internal, "", scionplane.ScopeInternal},
		{"1", "192.0.2.1:50000", "192.0.2.2:50000", scionplane.ScopeExternal},
		{"2", "192.0.2.5:50000", "192.0.2.6:50000", scionplane.ScopeExternal},
		{"sibling", internal, "10.0.0.2:30042", scionplane.ScopeSibling},
	} {
		link := scionplane.Link{Name: l.name, Local: netip.MustParseAddrPort(l.local), Scope: l.scope}
		if l.remote != "" {
			link.Remote = netip.MustParseAddrPort(l.remote)
		}
		r.Datapath.Links = append(r.Datapath.Links, link)
	}
	said := &[]string{}
	info := func(m string, fields ...any) { *said = append(*said, m) }
	g, told := newGate(r, false, info, info), &ruleLog{}
	g.openLog()
	g.sinks = []acceptor{told}
	return g, told, said
}

// Devices 11 and 12 are outside, 21 and 22 inside; 1 is loopback.
func TestGateRules(t *testing.T) {
	only := func(d ...int) scionplane.Accept { return scionplane.Accept{Devices: d} }
	except := func(d ...int) scionplane.Accept { return scionplane.Accept{Except: true, Devices: d} }
	for _, c := range []struct {
		name             string
		internal         string
		one, two         []int // devices of the external links
		sibling, service []int
		inside           []int
		first, second    scionplane.Accept
		others           scionplane.Accept // of internal address and sibling
		both             []int
	}{
		{"apart", "10.0.0.1:30042", []int{11}, []int{12}, []int{21}, []int{1}, []int{21}, only(11), only(12), except(11, 12), nil},
		{"links share an interface", "10.0.0.1:30042", []int{11}, []int{11}, []int{21}, nil, []int{21}, only(11), only(11), except(11), nil},
		{"several next hops", "10.0.0.1:30042", []int{11, 12}, []int{12}, []int{21}, nil, []int{21}, only(11, 12), only(12), except(11, 12), nil},
		{"one interface for all", "10.0.0.1:30042", []int{11}, []int{11}, []int{11}, nil, []int{11}, only(11), only(11), except(), []int{11}},
		{"sibling behind a neighbour's interface", "10.0.0.1:30042", []int{11}, []int{12}, []int{12}, nil, []int{21}, only(11), only(12), except(11), []int{12}},
		{"service behind a neighbour's interface", "10.0.0.1:30042", []int{11}, []int{12}, []int{21}, []int{12}, []int{21}, only(11), only(12), except(11), []int{12}},
		{"internal address on loopback, routed", "10.0.0.1:30042", []int{11}, []int{12}, []int{21}, nil, []int{1}, only(11), only(12), except(11, 12), nil},
		{"internal address on loopback, inside not known", "10.0.0.1:30042", []int{11}, []int{12}, nil, []int{1}, []int{1}, only(11), only(12), except(), []int{11, 12}},
		{"internal address of loopback", "127.0.0.1:30042", []int{11}, []int{12}, []int{1}, []int{1}, []int{1}, only(11), only(12), except(11, 12), nil},
		{"no route to a neighbour", "10.0.0.1:30042", nil, []int{12}, []int{21}, nil, []int{21}, only(), only(12), except(12), nil},
		{"neighbour on this host", "10.0.0.1:30042", []int{1}, []int{12}, []int{21}, nil, []int{21}, only(1), only(12), except(12), nil},
	} {
		g, told, said := testGate(c.internal)
		g.linkDevices = [][]int{nil, c.one, c.two, c.sibling}
		g.serviceDevices, g.internalDevices = [][]int{c.service}, c.inside
		_, both := g.computeRules()
		if !reflect.DeepEqual(both, c.both) {
			t.Errorf("%s: %v lead both ways, want %v", c.name, both, c.both)
		}
		check(t, g.apply())
		for link, want := range []scionplane.Accept{c.others, c.first, c.second, c.others} {
			if got := told.rules[link]; !got.Equal(want) {
				t.Errorf("%s: link %d is told %+v, want %+v", c.name, link, got, want)
			}
		}
		if warned := strings.Contains(strings.Join(*said, "\n"), "Interfaces lead to other ASes and may lead inside, too"); warned != (len(c.both) > 0) {
			t.Errorf("%s: said %q", c.name, *said)
		}
	}
}

// Only what changes is told again, and what was said once is not said twice.
func TestGateAppliesChanges(t *testing.T) {
	g, told, said := testGate("10.0.0.1:30042")
	g.linkDevices = [][]int{nil, {11}, {11}, {11}}
	check(t, g.apply())
	g.unresolved, told.links, *said = 0, nil, nil
	g.found(&g.linkDevices[3], []int{11}, false)
	if len(told.links) != 0 || len(*said) != 0 {
		t.Errorf("nothing has changed: links %v told, %q said", told.links, *said)
	}
	g.found(&g.linkDevices[2], []int{12}, false)
	if want := []int{0, 2, 3}; !reflect.DeepEqual(told.links, want) || len(*said) != 1 {
		t.Errorf("link 2 moved: links %v told, want %v; %q said", told.links, want, *said)
	}
	*said = nil
	g.found(&g.linkDevices[1], nil, false)
	if !strings.Contains(strings.Join(*said, "\n"), "No route leads to the far end of a link") {
		t.Errorf("route lost: %q said", *said)
	}
	late := &ruleLog{}
	check(t, g.addSink(late))
	if !reflect.DeepEqual(late.links, []int{0, 1, 2, 3}) {
		t.Errorf("one that came late was told of links %v", late.links)
	}
}

// refusing does not take the rules of a link.
type refusing struct {
	ruleLog
	link int
}

func (r *refusing) SetLinkAccept(link int, a scionplane.Accept) error {
	if link == r.link {
		return errors.New("no")
	}
	return r.ruleLog.SetLinkAccept(link, a)
}

// A rule that one does not take keeps nobody from the other rules, nor others from that one. It is told again until it is taken,
// and the log says so once.
func TestGateRetries(t *testing.T) {
	g, told, said := testGate("10.0.0.1:30042")
	bad := &refusing{link: -1}
	g.sinks = []acceptor{bad, told}
	g.linkDevices = [][]int{nil, {11}, {12}, {21}}
	check(t, g.apply())
	bad.link, g.unresolved, *said = 1, 0, nil
	g.found(&g.linkDevices[1], []int{13}, false)
	want := scionplane.Accept{Devices: []int{13}}
	if !told.rules[1].Equal(want) || !bad.rules[3].Equal(told.rules[3]) || !slices.Contains(told.rules[3].Devices, 13) {
		t.Errorf("told %v and %v, want all but the one rule that was not taken", told.rules, bad.rules)
	}
	for range 3 {
		g.retry()
	}
	if len(*said) != 1 {
		t.Errorf("said %q, want one line", *said)
	}
	bad.link = -1
	g.retry()
	if !bad.rules[1].Equal(want) {
		t.Errorf("told %v, want %v once it is taken", bad.rules[1], want)
	}
	told.links = nil
	g.retry()
	if len(told.links) != 0 {
		t.Errorf("links %v are told again though all is taken", told.links)
	}
	// The rule changes, is not taken by one, and changes back: he that took it has to be told.
	bad.link = 1
	g.sinks = []acceptor{told, bad}
	g.found(&g.linkDevices[1], []int{14}, false)
	g.found(&g.linkDevices[1], []int{13}, false)
	if !told.rules[1].Equal(want) {
		t.Errorf("told %v, want %v again", told.rules[1], want)
	}
}

// A start that fails is one line: nothing is said before it has not.
func TestGateDefersLog(t *testing.T) {
	g, _, said := testGate("10.0.0.1:30042")
	g.logOpen = false
	g.linkDevices = [][]int{nil, {11}, {11}, {11}}
	check(t, g.apply())
	if len(*said) != 0 {
		t.Errorf("said %q before the log is open", *said)
	}
	g.openLog()
	if len(*said) != 1 {
		t.Errorf("said %q when the log opened", *said)
	}
}

func TestGateLoose(t *testing.T) {
	g, told, _ := testGate("10.0.0.1:30042")
	g.loose = true
	check(t, g.start(t.Context(), nil, nil))
	for link := range g.linkDevices {
		if !told.rules[link].Equal(scionplane.Accept{Except: true}) {
			t.Errorf("link %d is told %+v", link, told.rules[link])
		}
	}
}
