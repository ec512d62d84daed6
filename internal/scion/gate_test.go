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

// ruleLog is a sink that keeps the rules it gets.
type ruleLog struct {
	// links are the links of all calls, in order.
	links []int
	// rules has the last rule of each link.
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

// testGate returns a gate for an internal link, two external ones and a sibling, in that order, with its sink and the
// messages that it logs.
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
	lines := &[]string{}
	info := func(m string, fields ...any) { *lines = append(*lines, m) }
	g, sink := newGate(r, false, info, info), &ruleLog{}
	g.openLog()
	g.sinks = []acceptor{sink}
	return g, sink, lines
}

// TestGateRules checks the rules that follow from the routes. Devices 11 and 12 are outside, 21 and 22 inside; 1 is
// loopback.
func TestGateRules(t *testing.T) {
	only := func(d ...int) scionplane.Accept { return scionplane.Accept{Devices: d} }
	except := func(d ...int) scionplane.Accept { return scionplane.Accept{Except: true, Devices: d} }
	for _, c := range []struct {
		name             string
		internal         string
		one, two         []int             // devices that the routes of the external links lead to
		sibling, service []int             // devices that the routes of the sibling and the service lead to
		inside           []int             // devices with the internal address
		first, second    scionplane.Accept // rules of the external links
		others           scionplane.Accept // rule of the internal link and the sibling's
		both             []int             // devices that lead both ways
	}{
		{"apart", "10.0.0.1:30042", []int{11}, []int{12}, []int{21}, []int{1}, []int{21}, only(11), only(12), except(11, 12), nil},
		{"links share an interface", "10.0.0.1:30042", []int{11}, []int{11}, []int{21}, nil, []int{21}, only(11), only(11), except(11), nil},
		{"several next hops", "10.0.0.1:30042", []int{11, 12}, []int{12}, []int{21}, nil, []int{21}, only(11, 12), only(12), except(11, 12), nil},
		{"one interface for all", "10.0.0.1:30042", []int{11}, []int{11}, []int{11}, nil, []int{11}, only(11), only(11), except(), []int{11}},
		{"sibling behind a neighbor's interface", "10.0.0.1:30042", []int{11}, []int{12}, []int{12}, nil, []int{21}, only(11), only(12), except(11), []int{12}},
		{"service behind a neighbor's interface", "10.0.0.1:30042", []int{11}, []int{12}, []int{21}, []int{12}, []int{21}, only(11), only(12), except(11), []int{12}},
		{"internal address on loopback, routed", "10.0.0.1:30042", []int{11}, []int{12}, []int{21}, nil, []int{1}, only(11), only(12), except(11, 12), nil},
		{"internal address on loopback, inside not known", "10.0.0.1:30042", []int{11}, []int{12}, nil, []int{1}, []int{1}, only(11), only(12), except(), []int{11, 12}},
		{"internal address of loopback", "127.0.0.1:30042", []int{11}, []int{12}, []int{1}, []int{1}, []int{1}, only(11), only(12), except(11, 12), nil},
		{"no route to a neighbor", "10.0.0.1:30042", nil, []int{12}, []int{21}, nil, []int{21}, only(), only(12), except(12), nil},
		{"neighbor on this host", "10.0.0.1:30042", []int{1}, []int{12}, []int{21}, nil, []int{21}, only(1), only(12), except(12), nil},
	} {
		g, sink, lines := testGate(c.internal)
		g.linkDevices = [][]int{nil, c.one, c.two, c.sibling}
		g.serviceDevices, g.internalDevices = [][]int{c.service}, c.inside
		_, both := g.computeRules()
		if !reflect.DeepEqual(both, c.both) {
			t.Errorf("%s: %v lead both ways, want %v", c.name, both, c.both)
		}
		check(t, g.apply())
		for link, want := range []scionplane.Accept{c.others, c.first, c.second, c.others} {
			if got := sink.rules[link]; !got.Equal(want) {
				t.Errorf("%s: link %d has the rule %+v, want %+v", c.name, link, got, want)
			}
		}
		if warned := strings.Contains(strings.Join(*lines, "\n"), "Interfaces lead to other ASes and may lead inside, too"); warned != (len(c.both) > 0) {
			t.Errorf("%s: logged %q", c.name, *lines)
		}
	}
}

// TestGateAppliesChanges checks that only rules that change are applied again, and that the log has each message once.
func TestGateAppliesChanges(t *testing.T) {
	g, sink, lines := testGate("10.0.0.1:30042")
	g.linkDevices = [][]int{nil, {11}, {11}, {11}}
	check(t, g.apply())
	g.unresolved, sink.links, *lines = 0, nil, nil
	g.found(&g.linkDevices[3], []int{11}, false)
	if len(sink.links) != 0 || len(*lines) != 0 {
		t.Errorf("nothing has changed: rules of links %v applied, %q logged", sink.links, *lines)
	}
	g.found(&g.linkDevices[2], []int{12}, false)
	if want := []int{0, 2, 3}; !reflect.DeepEqual(sink.links, want) || len(*lines) != 1 {
		t.Errorf("link 2 moved: rules of links %v applied, want %v; %q logged", sink.links, want, *lines)
	}
	*lines = nil
	g.found(&g.linkDevices[1], nil, false)
	if !strings.Contains(strings.Join(*lines, "\n"), "No route leads to the far end of a link") {
		t.Errorf("route lost: %q logged", *lines)
	}
	late := &ruleLog{}
	check(t, g.addSink(late))
	if !reflect.DeepEqual(late.links, []int{0, 1, 2, 3}) {
		t.Errorf("a sink that was added late got rules of links %v", late.links)
	}
}

// refusing is a sink that refuses the rules of one link.
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

// TestGateRetries checks that a sink which refuses a rule gets the other rules, and that other sinks get that rule. The
// gate tries again until the sink accepts the rule, and logs the failure once.
func TestGateRetries(t *testing.T) {
	g, sink, lines := testGate("10.0.0.1:30042")
	bad := &refusing{link: -1}
	g.sinks = []acceptor{bad, sink}
	g.linkDevices = [][]int{nil, {11}, {12}, {21}}
	check(t, g.apply())
	bad.link, g.unresolved, *lines = 1, 0, nil
	g.found(&g.linkDevices[1], []int{13}, false)
	want := scionplane.Accept{Devices: []int{13}}
	if !sink.rules[1].Equal(want) || !bad.rules[3].Equal(sink.rules[3]) || !slices.Contains(sink.rules[3].Devices, 13) {
		t.Errorf("sinks have %v and %v, want all but the one rule that was refused", sink.rules, bad.rules)
	}
	for range 3 {
		g.retry()
	}
	if len(*lines) != 1 {
		t.Errorf("logged %q, want one line", *lines)
	}
	bad.link = -1
	g.retry()
	if !bad.rules[1].Equal(want) {
		t.Errorf("rule %v, want %v once it is accepted", bad.rules[1], want)
	}
	sink.links = nil
	g.retry()
	if len(sink.links) != 0 {
		t.Errorf("rules of links %v are applied again though all are accepted", sink.links)
	}
	// The rule changes, one sink refuses it, and it changes back. The sink that has accepted it gets the old one again.
	bad.link = 1
	g.sinks = []acceptor{sink, bad}
	g.found(&g.linkDevices[1], []int{14}, false)
	g.found(&g.linkDevices[1], []int{13}, false)
	if !sink.rules[1].Equal(want) {
		t.Errorf("rule %v, want %v again", sink.rules[1], want)
	}
}

// TestGateDefersLog checks that nothing is logged before the start has succeeded, so that a failed start prints one line.
func TestGateDefersLog(t *testing.T) {
	g, _, lines := testGate("10.0.0.1:30042")
	g.logOpen = false
	g.linkDevices = [][]int{nil, {11}, {11}, {11}}
	check(t, g.apply())
	if len(*lines) != 0 {
		t.Errorf("logged %q before the log is open", *lines)
	}
	g.openLog()
	if len(*lines) != 1 {
		t.Errorf("logged %q when the log opened", *lines)
	}
}

func TestGateLoose(t *testing.T) {
	g, sink, _ := testGate("10.0.0.1:30042")
	g.loose = true
	check(t, g.start(t.Context(), nil, nil))
	for link := range g.linkDevices {
		if !sink.rules[link].Equal(scionplane.Accept{Except: true}) {
			t.Errorf("link %d has the rule %+v", link, sink.rules[link])
		}
	}
}
