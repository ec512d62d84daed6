// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/lipgloss"

	"culvert/internal/show/screen"
	"culvert/internal/show/usage"
	"culvert/internal/stats"
)

func TestOptions(t *testing.T) {
	for _, o := range []WatchOptions{
		{}, {Interval: -time.Second}, {Interval: 100*time.Millisecond - 1}, {Interval: time.Second, Count: -1},
	} {
		if err := Watch(context.Background(), o); !usage.Is(err) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestNarrow(t *testing.T) {
	routers := []Router{
		{ID: "a", Interfaces: []Interface{port("x", 0), port("y", 0)}},
		{ID: "b", Interfaces: []Interface{port("x", 0)}},
	}
	for want, o := range map[string]WatchOptions{
		"a[x y]b[x]": {}, "a[x y]": {Router: "a"}, "a[x]b[x]": {Interface: "x"}, "a[y]": {Router: "a", Interface: "y"}, "": {Router: "c"},
	} {
		var got string
		for _, r := range o.narrow(routers) {
			var names []string
			for _, i := range r.Interfaces {
				names = append(names, i.Interface)
			}
			got += r.ID + fmt.Sprint(names)
		}
		if got != want {
			t.Errorf("%+v: %s, want %s", o, got, want)
		}
	}
	if len(routers[0].Interfaces) != 2 || routers[0].Interfaces[0].Interface != "x" {
		t.Error("the source was changed")
	}
}

// TestRouterHere has two routers with the same ID, as in two labs. In the network namespace of one the ID means that one.
func TestRouterHere(t *testing.T) {
	there, here := Router{ID: "br1", NetNS: 1}, Router{ID: "br1", NetNS: 2, Here: true}
	for _, tc := range []struct {
		router string
		all    []Router
		want   int
	}{
		{"br1", []Router{there, here}, 1},
		{"br1", []Router{there, there, {ID: "br2", Here: true}}, 2},
		{"", []Router{there, here}, 2},
	} {
		kept := WatchOptions{Router: tc.router}.narrow(tc.all)
		if len(kept) != tc.want || tc.want == 1 && !kept[0].Here {
			t.Errorf("%q of %+v: %+v", tc.router, tc.all, kept)
		}
	}
}

func TestWaiting(t *testing.T) {
	for want, o := range map[string]WatchOptions{
		"no data plane a now, waiting":                                  {Router: "a"},
		"data plane a is not attached to x yet, waiting":                {Router: "a", Interface: "x"},
		"culvert is not attached to an interface x yet, waiting":        {Interface: "x"},
		"culvert is not attached anywhere on this machine yet, waiting": {},
	} {
		if got := o.waitingFor(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestLines has routers come and go while lines are written.
func TestLines(t *testing.T) {
	br1 := func(out uint64) Router {
		return Router{ID: "br1", Interfaces: []Interface{port("eth1", out/10, reason("fwd", "out", out), reason("pass", "other", 1))}}
	}
	samples := []sample{at(1, br1(100)), at(2, br1(100), Router{ID: "br2"}), at(3), at(4, br1(20)), at(5, br1(50))}
	look := func() (sample, error) {
		if len(samples) == 0 {
			return sample{}, errors.New("too many samples taken")
		}
		s := samples[0]
		samples = samples[1:]
		return s, nil
	}
	var b bytes.Buffer
	o := WatchOptions{Interval: time.Millisecond, Count: len(samples), Out: &b}
	if err := watchLines(context.Background(), o, at(0, br1(90)), look); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range strings.Split(strings.TrimSpace(b.String()), "\n")[1:] {
		got = append(got, strings.Join(strings.Fields(l), " "))
	}
	want := []string{
		"03:04:06 br1 eth1 fwd out 10.0 1000 100",
		"03:04:06 br1 eth1 lost redirect 1.0 - 10",
		"03:04:10 br1 eth1 fwd out 30.0 3000 50",
		"03:04:10 br1 eth1 lost redirect 3.0 - 5",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

// TestSharedID has two routers with the same ID in two network namespaces, as in two labs.
func TestSharedID(t *testing.T) {
	routers := func(n uint64) []Router {
		var all []Router
		for i, id := range []string{"br1", "br1", "br2"} {
			r := Router{ID: id, NetNS: uint32(i + 1), Interfaces: []Interface{port("eth1", 0, reason("fwd", "out", n))}}
			if i == 0 {
				r.NetNSName = "red"
			}
			all = append(all, r)
		}
		return all
	}
	var b bytes.Buffer
	if err := writeChanged(&b, false, epoch, flows(at(0, routers(1)...), at(1, routers(2)...))); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(b.String()) {
		got = append(got, strings.Fields(line)[1])
	}
	if want := "br1@red br1@2 br2"; strings.Join(got, " ") != want {
		t.Errorf("lines of %v, want %s", got, want)
	}
	s := newTestTable(WatchOptions{Interval: time.Second}, at(0, routers(1)...))
	s.resized(80, 24)
	for _, want := range [][]string{
		{"br1 in red", "br1 in netns 2", "br2 in netns 3", "eth1 in red by reason"},
		{"eth1 in 2 by reason"},
		{"eth1 by reason"},
	} {
		for _, text := range want {
			if !strings.Contains(s.View(), text) {
				t.Errorf("no %q in\n%s", text, s.View())
			}
		}
		s.Press("down")
	}
}

func TestLinesEndWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	look := func() (sample, error) { return sample{}, nil }
	if err := watchLines(ctx, WatchOptions{Interval: time.Hour, Out: &bytes.Buffer{}}, at(0), look); err != nil {
		t.Error(err)
	}
}

// testTable is a live table on a screen without a terminal.
type testTable struct {
	*live
	*screen.Screen
}

func newTestTable(o WatchOptions, first sample) *testTable {
	l := newLive(o, first)
	return &testTable{l, screen.New(lipgloss.NewRenderer(&bytes.Buffer{}), o.Interval, l.view())}
}

// sample gives the screen a sample.
func (s *testTable) sample(now sample) { s.Sampled(func() { s.take(now) }, nil) }

// newTestScreen returns a table of two routers with n interfaces each, and 30 reasons for each interface.
func newTestScreen(n int) *testTable {
	routers := func(packets uint64) (all []Router) {
		for _, id := range []string{"br1", "br2"} {
			r := testRouter()
			r.ID, r.Interfaces = id, nil
			for i := range n {
				var reasons []stats.Reason
				for k := range 30 {
					reasons = append(reasons, reason("punt", fmt.Sprintf("reason-%02d", k), packets*uint64(k)))
				}
				r.Interfaces = append(r.Interfaces, port(fmt.Sprintf("eth%d", i), packets, reasons...))
			}
			all = append(all, r)
		}
		return all
	}
	s := newTestTable(WatchOptions{Interval: time.Second}, at(0, routers(10)...))
	s.take(at(1, routers(20)...))
	return s
}

func (s *testTable) resized(width, height int) *testTable {
	s.Resize(width, height)
	return s
}

// TestViewFits draws on terminals of several sizes.
func TestViewFits(t *testing.T) {
	for _, n := range []int{0, 1, 2, 40} {
		s := newTestScreen(n)
		for _, size := range [][2]int{{80, 24}, {120, 40}, {200, 10}, {20, 5}, {1, 1}} {
			s.resized(size[0], size[1])
			for _, mode := range []string{"", "?", "?p"} {
				for _, k := range mode {
					s.Press(string(k))
				}
				lines := strings.Split(s.View(), "\n")
				if len(lines) != size[1] {
					t.Errorf("%d interfaces, %v: %d lines", n, size, len(lines))
				}
				for _, l := range lines {
					if utf8.RuneCountInString(l) > size[0] {
						t.Errorf("%d interfaces, %v: too long: %q", n, size, l)
					}
				}
			}
		}
	}
}

func TestView(t *testing.T) {
	s := newTestScreen(2).resized(80, 24)
	view := s.View()
	for _, want := range []string{
		"br1 in red, native, process 77, loaded 1s ago",
		"  eth0                4.35k    3.48M        0      4.35k       0      0     10",
		"eth0 by reason",
		"  punt    reason-29                      290      232k             580    58.0kB",
		"more",
		keysLine,
	} {
		if !strings.Contains(view, want) {
			t.Errorf("no %q in\n%s", want, view)
		}
	}
	first := strings.Index(view, "reason-29")
	if second := strings.Index(view, "reason-28"); first < 0 || second < first {
		t.Errorf("not sorted by rate:\n%s", view)
	}
}

// TestNarrowView has terminals that are narrower than all columns together. Drops and losses stay.
func TestNarrowView(t *testing.T) {
	for width, want := range map[int]string{
		80: "packets/s received bits/s forward slow path kernel drop lost",
		78: "packets/s received bits/s forward slow path kernel drop lost",
		77: "packets/s received forward slow path kernel drop lost",
		68: "packets/s received forward slow path drop lost",
		60: "packets/s received forward drop lost",
		50: "packets/s received forward drop lost",
		49: "packets/s received drop lost",
		40: "packets/s drop lost",
		33: "packets/s drop lost",
	} {
		view := newTestScreen(1).resized(width, 24).View()
		if head := strings.Join(strings.Fields(strings.Split(view, "\n")[2]), " "); head != want {
			t.Errorf("%d cells: %q, want %q", width, head, want)
		}
	}
}

// TestHelpIsWhole wants the texts of the help and the key for it to be there without a cut.
func TestHelpIsWhole(t *testing.T) {
	for _, width := range []int{80, 50} {
		s := newTestScreen(1).resized(width, 30)
		if view := s.View(); !strings.Contains(view, "? help") {
			t.Errorf("%d cells: no ? help in\n%s", width, view)
		}
		s.Press("?")
		words := strings.Join(strings.Fields(s.View()), " ")
		for _, want := range []string{"slow path, kernel and drop together", "as if culvert were not there", "up, k, shift+tab interface above", "q quit"} {
			if !strings.Contains(words, want) {
				t.Errorf("%d cells: no %q in\n%s", width, want, s.View())
			}
		}
	}
}

// TestInterfaceThatNeverAppears counts on an interface that no sample has, one that appears, and without an end.
func TestInterfaceThatNeverAppears(t *testing.T) {
	have := at(1, Router{ID: "br1", Interfaces: []Interface{port("x", 0)}})
	for _, tt := range []struct {
		o           WatchOptions
		first, then sample
		fail        string
	}{
		{WatchOptions{Interface: "x", Count: 2}, at(0), at(1), "culvert is not attached to an interface x: 'culvert status' lists"},
		{WatchOptions{Interface: "x", Router: "a", Count: 2}, at(0), at(1), "router a is not attached to an interface x: 'culvert status' lists"},
		{WatchOptions{Interface: "x", Count: 2}, at(0), have, ""},
		{WatchOptions{Interface: "x", Count: 2}, have, at(2), ""},
		{WatchOptions{Count: 2}, at(0), at(1), ""},
	} {
		tt.o.Interval, tt.o.Out = time.Millisecond, io.Discard
		err := watchLines(t.Context(), tt.o, tt.first, func() (sample, error) { return tt.then, nil })
		if err == nil && tt.fail != "" || err != nil && (tt.fail == "" || !strings.Contains(err.Error(), tt.fail)) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.fail)
		}
	}
}

func TestKeys(t *testing.T) {
	s := newTestScreen(2).resized(80, 24)
	press := func(keys ...string) {
		for _, k := range keys {
			if s.Press(k) {
				t.Errorf("%s quits", k)
			}
		}
	}
	wantSelected := func(want string) {
		t.Helper()
		if got := s.selected.router + " " + s.selected.iface; got != want {
			t.Errorf("%s is selected, want %s", got, want)
		}
	}
	wantSelected("br1 eth0")
	press("down", "tab")
	wantSelected("br2 eth0")
	press("j", "j")
	wantSelected("br1 eth0")
	press("up")
	wantSelected("br2 eth1")

	press("?")
	if !strings.Contains(s.View(), "claimed by no stage") {
		t.Error("no help")
	}
	press("esc", "p")
	if view := s.View(); strings.Contains(view, "claimed by no stage") || !strings.Contains(view, "PAUSED") {
		t.Errorf("help or no pause:\n%s", view)
	}
	before := s.flows
	s.sample(at(2))
	if len(s.flows) != len(before) {
		t.Error("a new sample is shown while paused")
	}
	press("p")
	s.sample(at(3))
	if view := s.View(); !strings.Contains(view, "not attached anywhere") {
		t.Errorf("after the last data plane was detached:\n%s", view)
	}
	press("down", "up") // without interfaces to select
	s.Sampled(nil, errors.New("broken"))
	if !strings.Contains(s.View(), "broken") {
		t.Error("the error does not show")
	}
	s.take(newTestScreen(1).now)
	wantSelected("br1 eth0")
	for _, k := range []string{"q", "ctrl+c"} {
		if !s.Press(k) {
			t.Errorf("%s does not quit", k)
		}
	}
}
