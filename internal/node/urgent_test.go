// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"culvert/internal/cluster"
	"culvert/internal/cluster/agent"
	"culvert/internal/cluster/lastgood"
	"culvert/internal/cluster/urgent"
	"culvert/internal/datapath"
	"culvert/internal/edit"
	"culvert/internal/filter/filterplane"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/stage"
	"culvert/internal/stages"
	"culvert/internal/testbed"
)

// urgentBed is a data plane from a file, on which urgent changes are carried out.
type urgentBed struct {
	*testing.T
	*member
	journal string
	up      *up
}

const urgentFile = `interfaces = ["nu0"]
name = "node-urgent-test"
[[filter.set]]
name = "bad"
entries = ["192.0.2.0/24", "198.51.100.9"]
[[filter.set]]
name = "hand"
[[filter.rule]]
name = "first"
action = "count"
expression = "tcp port 1"
[[filter.rule]]
name = "bad"
action = "drop"
src = "@bad"
[[filter.rule]]
name = "last"
action = "count"
expression = "tcp port 9"
[[filter.protect]]
address = "10.0.0.1:80"
forwarded = true
[lb]
seed = "a seed for this test alone, which is no secret"
[[lb.vip]]
address = "203.0.113.1:80"
protocol = "tcp"
[[lb.vip.backend]]
address = "10.0.0.11"
weight = 3
[[lb.vip.backend]]
address = "10.0.0.12"
`

func newUrgentBed(t *testing.T) *urgentBed {
	t.Helper()
	testbed.InNamespace(t)
	testbed.AddVeth(t, "nu0", "nu1")
	testbed.IP(t, "addr add 10.0.0.1/24 dev nu0")
	b := &urgentBed{T: t, journal: filepath.Join(t.TempDir(), "urgent")}
	b.open()
	b.bring(urgentFile)
	t.Cleanup(func() { _ = b.up.inst.DetachAll(); b.up.close() })
	return b
}

// open reads the journal as a process does that starts.
func (b *urgentBed) open() {
	b.Helper()
	keeper, err := urgent.Open(b.journal)
	if err != nil {
		b.Fatal(err)
	}
	b.member = &member{keeper: keeper}
}

// bring brings a file into force as a start does.
func (b *urgentBed) bring(text string) {
	b.Helper()
	path := filepath.Join(b.TempDir(), "c.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	n, err := stages.Load(path)
	if err != nil {
		b.Fatal(err)
	}
	if b.up != nil {
		b.up.close()
	}
	log := slog.New(slog.DiscardHandler)
	b.up, err = bringUp(b.Context(), stage.File{Path: path, Node: n}, stage.Start{Log: log, Out: io.Discard}, &up{cluster: b.member})
	if err != nil {
		b.Fatal(err)
	}
	b.again(b.Context(), b.up, log)
}

// has returns what is on the data plane, without numbers that only tell generations apart.
func (b *urgentBed) has() string {
	b.Helper()
	f, err := filterplane.Read(b.up.inst)
	if err != nil {
		b.Fatal(err)
	}
	f.Named = 0
	var text strings.Builder
	enter := func(v any) {
		j, err := json.Marshal(v)
		if err != nil {
			b.Fatal(err)
		}
		fmt.Fprintf(&text, "%s\n", j)
	}
	enter(f)
	for _, s := range f.Sets {
		members, err := filterplane.Prefixes(b.up.inst, s.Name)
		if err != nil {
			b.Fatal(err)
		}
		for p, until := range members.All() {
			fmt.Fprintf(&text, "%s %s %d\n", s.Name, p, until)
		}
	}
	plane, err := lbplane.View(b.up.inst)
	if err != nil {
		b.Fatal(err)
	}
	state, err := lb.Load(plane)
	if err != nil {
		b.Fatal(err)
	}
	for _, v := range state.VIPs {
		v.Number = 0
		slices.SortFunc(v.Backends, func(x, y lb.Backend) int { return x.Addr.Compare(y.Addr) })
		for n := range v.Backends {
			v.Backends[n].ID = 0
		}
		enter(v)
	}
	return text.String()
}

func held(id int, words, request string) agent.Held {
	return agent.Held{Urgent: cluster.Urgent{ID: fmt.Sprintf("%08d", id), Words: words, Request: json.RawMessage(request)}}
}

// each has a change of each kind. text is what is on the data plane only while it is in force, or with ! only while it is not.
var each = []struct {
	held agent.Held
	text string
}{
	{held(1, "filter add", `{"rule":"urgent-1","action":"drop","expression":"udp port 7","first":true}`), `"urgent-1"`},
	{held(2, "filter del", `{"rules":["bad"]}`), `!"Name":"bad","Src"`},
	{held(3, "filter set add", `{"set":"bad","entries":["198.51.100.0/24","203.0.113.77"]}`), "bad 203.0.113.77/32"},
	{held(4, "filter set del", `{"set":"bad","entries":["192.0.2.128/25"]}`), "bad 192.0.2.0/25"},
	{held(5, "filter set add", `{"set":"hand","entries":["192.0.2.1"]}`), "hand 192.0.2.1/32"},
	{held(6, "filter set add", `{"set":"urgent","entries":["192.0.2.2"]}`), "urgent 192.0.2.2/32"},
	{held(7, "filter protect", `{"service":"10.0.0.1:443","forwarded":true}`), "10.0.0.1:443"},
	{held(8, "filter unprotect", `{"service":"10.0.0.1:80"}`), "!10.0.0.1:80"},
	{held(9, "lb drain", `{"vip":"203.0.113.1:80/tcp","backend":"10.0.0.11"}`), `"drained":true`},
	{held(10, "lb backend add", `{"vip":"203.0.113.1:80/tcp","backend":"10.0.0.13"}`), "10.0.0.13"},
	{held(11, "lb backend set", `{"vip":"203.0.113.1:80/tcp","backend":"10.0.0.11","weight":7}`), `"weight":7`},
	{held(12, "lb backend del", `{"vip":"203.0.113.1:80/tcp","backend":"10.0.0.12"}`), "!10.0.0.12"},
	{held(13, "lb vip add", `{"vip":"203.0.113.9:80/tcp"}`), "203.0.113.9"},
	{held(14, "lb vip set", `{"vip":"203.0.113.1:80/tcp","hash":"source"}`), `"hash":"source"`},
}

func allHeld() (all []agent.Held) {
	for _, c := range each {
		all = append(all, c.held)
	}
	return all
}

// carry brings changes into force, and wants none to fail.
func (b *urgentBed) carry(what string, changes ...agent.Held) {
	b.Helper()
	if failed := b.keeper.Bring(b.Context(), b.up.inst, changes); len(failed) > 0 {
		b.Fatalf("%s: failed: %v", what, failed)
	}
	has := b.has()
	for _, c := range each {
		text, not := strings.CutPrefix(c.text, "!")
		in := slices.ContainsFunc(changes, func(h agent.Held) bool { return h.ID == c.held.ID })
		if strings.Contains(has, text) == not == in {
			b.Errorf("%s: %s %s in force: %v; there is\n%s", what, c.held.Words, c.held.Request, !in, has)
		}
	}
}

// TestUrgentUndo carries out a change of each kind, alone and together, and undoes it: also by a process that has only the journal.
func TestUrgentUndo(t *testing.T) {
	b := newUrgentBed(t)
	base := b.has()
	back := func(what string) {
		t.Helper()
		b.carry(what)
		if got := b.has(); got != base {
			t.Fatalf("%s: there is\n%s, want\n%s", what, got, base)
		}
	}
	for _, c := range each {
		b.carry("alone", c.held)
		back("after " + c.held.Words + " " + string(c.held.Request))
	}
	b.carry("together", allHeld()...)
	b.open()
	if got := b.keeper.Held(); len(got) != len(each) {
		t.Errorf("the journal has %d changes, want %d", len(got), len(each))
	}
	b.carry("once more", allHeld()...)
	back("by another process")
	b.carry("one by one", allHeld()...)
	for n := range each {
		b.carry(fmt.Sprintf("without the first %d", n+1), allHeld()[n+1:]...)
	}
	back("the first one first")
}

// TestUrgentReload reads another file while urgent changes are in force: they stay, and their end brings back what the new file has.
func TestUrgentReload(t *testing.T) {
	b := newUrgentBed(t)
	b.carry("together", allHeld()...)
	other := strings.NewReplacer(
		`"198.51.100.9"`, `"203.0.113.77", "203.0.113.78"`, "weight = 3", "weight = 5", "tcp port 9", "tcp port 10",
	).Replace(urgentFile)
	for what, text := range map[string]string{"the same file": urgentFile, "another file": other} {
		b.bring(text)
		b.open() // also by another process
		has := b.has()
		b.carry(what, allHeld()...)
		if what == "the same file" && b.has() != has {
			t.Errorf("%s: after a reload there was\n%s, and now there is\n%s", what, has, b.has())
		}
	}
	b.bring(other)
	b.keeper.Bring(t.Context(), b.up.inst, nil)
	ended := b.has()
	b.bring(other)
	if fresh := b.has(); ended != fresh {
		t.Errorf("at the end there is\n%s, and the file has\n%s", ended, fresh)
	}
	if !strings.Contains(ended, "bad 203.0.113.77/32") && !strings.Contains(ended, "bad 203.0.113.76/31") || !strings.Contains(ended, `"weight":5`) {
		t.Errorf("at the end there is\n%s", ended)
	}
}

// TestUrgentOtherName reads a file with another name, which is refused: what was carried out is still known.
func TestUrgentOtherName(t *testing.T) {
	b := newUrgentBed(t)
	b.carry("one", each[4].held)
	log := slog.New(slog.DiscardHandler)
	p := newProcess(b.up, func(*lastgood.Set) (stage.File, error) {
		f := b.up.file
		n := *f.Node
		n.Name = "node-urgent-other"
		return stage.File{Path: f.Path, Node: &n}, nil
	}, newExported(), log, new(slog.LevelVar))
	if _, err := p.candidate(nil, func(error) {}); err == nil {
		t.Error("another name was taken")
	}
	if all := b.keeper.Held(); len(all) != 1 {
		t.Errorf("%d changes are known to be in force", len(all))
	}
}

// TestUrgentGoesBack has a plan come into force once more, as after a trial, in which an urgent change was that has ended since.
func TestUrgentGoesBack(t *testing.T) {
	b := newUrgentBed(t)
	added := each[2].held
	b.carry("one", added)
	b.bring(urgentFile) // its plan has the change
	b.keeper.Bring(t.Context(), b.up.inst, nil)
	base := b.has()
	q, err := edit.Parse(added.Words, added.Request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := edit.Do(t.Context(), q, b.up.inst, nil); err != nil { // as the plan does
		t.Fatal(err)
	}
	b.again(t.Context(), b.up, slog.New(slog.DiscardHandler))
	if has := b.has(); has != base {
		t.Errorf("there is\n%s, want\n%s", has, base)
	}
}

// TestUrgentRefused refuses what has no clear undo, what is a secret, and what is none. The others are carried out.
func TestUrgentRefused(t *testing.T) {
	b := newUrgentBed(t)
	base := b.has()
	bad := []agent.Held{
		held(1, "filter add", `{"action":"drop","expression":"udp"}`), held(2, "filter add", `{"rule":"bad","action":"drop","expression":"udp"}`),
		held(3, "filter add", `{"rule":"bad","action":"drop","expression":"udp","replace":true}`), held(4, "filter flush", `{}`),
		held(5, "filter set replace", `{"set":"bad","entries":["192.0.2.1"]}`), held(6, "filter set del", `{"set":"bad"}`),
		held(7, "key add", `{"index":0,"key":"AAAAAAAAAAAAAAAAAAAAAA=="}`), held(8, "filter bake", `{}`), held(9, "filter add", `{"rule":"x","colour":1}`),
		held(10, "filter del", `{"rules":["none"]}`), held(11, "lb drain", `{"vip":"203.0.113.5:80/tcp"}`), held(12, "filter set add", `no JSON`),
	}
	failed := b.keeper.Bring(t.Context(), b.up.inst, append(bad, each[0].held, held(99, "filter add", `{"rule":"urgent-99","action":"count","expression":"udp"}`)))
	for _, h := range bad {
		if failed[h.ID] == nil && h.ID != each[0].held.ID {
			t.Errorf("%s %s was carried out", h.Words, h.Request)
		}
	}
	if has := b.has(); !strings.Contains(has, "urgent-99") {
		t.Errorf("the good one was not carried out: %v", failed)
	}
	b.keeper.Bring(t.Context(), b.up.inst, nil)
	if got := b.has(); got != base {
		t.Errorf("there is\n%s, want\n%s", got, base)
	}
}

// TestUrgentUnconcerned drains a backend at all VIPs of a node that does not have it, until it has.
func TestUrgentUnconcerned(t *testing.T) {
	b := newUrgentBed(t)
	drain := held(1, "lb drain", `{"backend":"10.0.0.13"}`)
	bring := func() error { return b.keeper.Bring(t.Context(), b.up.inst, []agent.Held{drain})[drain.ID] }
	if err := bring(); !errors.Is(err, agent.ErrUnconcerned) || len(b.keeper.Held()) > 0 {
		t.Errorf("without the backend: %v, held %v", err, b.keeper.Held())
	}
	b.bring(urgentFile + "[[lb.vip.backend]]\naddress = \"10.0.0.13\"\n")
	if err := bring(); err != nil || !strings.Contains(b.has(), `"drained":true`) {
		t.Errorf("with the backend: %v, there is\n%s", err, b.has())
	}
	b.keeper.Bring(t.Context(), b.up.inst, nil)
	filter, _, _ := strings.Cut(urgentFile, "[lb]\n")
	b.bring(filter)
	if err := bring(); !errors.Is(err, agent.ErrUnconcerned) {
		t.Errorf("without a load balancer: %v", err)
	}
}

// TestUrgentWithout has changes about what a node does not have, which are nothing to it, and mistakes on a node that has it, which fail.
func TestUrgentWithout(t *testing.T) {
	b := newUrgentBed(t)
	about := func(words, request string) bool {
		t.Helper()
		h := held(1, words, request)
		defer b.keeper.Bring(t.Context(), b.up.inst, nil)
		err := b.keeper.Bring(t.Context(), b.up.inst, []agent.Held{h})[h.ID]
		return !errors.Is(err, agent.ErrUnconcerned)
	}
	without := []agent.Held{
		held(1, "filter del", `{"rules":["none"]}`), held(1, "filter set del", `{"set":"none","entries":["192.0.2.1"]}`), held(1, "filter unprotect", `{"service":"10.0.0.1:81"}`),
		held(1, "lb vip set", `{"vip":"203.0.113.5:80/tcp","on_failure":"move"}`), held(1, "lb vip set", `{"vip":"203.0.113.5:80","on_failure":"move"}`),
		held(1, "lb vip del", `{"vip":"203.0.113.1:80/udp"}`), held(1, "lb backend add", `{"vip":"203.0.113.5:80/tcp","backend":"10.0.0.13"}`),
		held(1, "lb backend set", `{"vip":"203.0.113.1:80/tcp","backend":"10.0.0.13","weight":7}`), held(1, "lb backend del", `{"vip":"203.0.113.1:80/tcp","backend":"10.0.0.13"}`),
		held(1, "lb drain", `{"vip":"203.0.113.5:80/tcp"}`), held(1, "lb undrain", `{"vip":"203.0.113.5:80/tcp","backend":"10.0.0.11"}`), held(1, "lb undrain", `{"backend":"10.0.0.13"}`),
	}
	for _, h := range without {
		if about(h.Words, string(h.Request)) {
			t.Errorf("%s %s concerns a node without that", h.Words, h.Request)
		}
	}
	for _, c := range each {
		if !about(c.held.Words, string(c.held.Request)) {
			t.Errorf("%s %s does not concern a node with that", c.held.Words, c.held.Request)
		}
	}
	for _, h := range []agent.Held{ // what is wrong stays wrong
		held(1, "filter del", `{"rules":["bad","none"]}`), held(1, "filter set del", `{"set":"bad","entries":["203.0.113.1"]}`),
		held(1, "lb vip add", `{"vip":"203.0.113.1:80/tcp"}`), held(1, "lb vip set", `{"vip":"203.0.113.1:80","on_failure":"move"}`),
		held(1, "filter add", `{"rule":"x","action":"drop","src":["@none"]}`),
	} {
		if !about(h.Words, string(h.Request)) {
			t.Errorf("%s %s: it is no error", h.Words, h.Request)
		}
	}
	set := each[13].held
	b.carry("set", set)
	filter, _, _ := strings.Cut(urgentFile, "[lb]\n")
	b.bring(filter)
	if err := b.keeper.Bring(t.Context(), b.up.inst, []agent.Held{set})[set.ID]; !errors.Is(err, agent.ErrUnconcerned) {
		t.Errorf("a setting of a VIP that has gone: %v", err)
	}
	b.keeper.Bring(t.Context(), b.up.inst, nil)
	for _, c := range each {
		if lb := strings.HasPrefix(c.held.Words, "lb "); about(c.held.Words, string(c.held.Request)) == lb {
			t.Errorf("without a load balancer: %s %s: concerned %v", c.held.Words, c.held.Request, !lb)
		}
	}
	failed := urgent.Without(allHeld(), errNoPlane)
	for _, c := range each {
		adds := slices.Contains([]string{"filter add", "filter set add", "filter protect"}, c.held.Words)
		if err := failed[c.held.ID]; err == nil || errors.Is(err, agent.ErrUnconcerned) == adds {
			t.Errorf("without a data plane: %s %s: %v", c.held.Words, c.held.Request, err)
		}
	}
}

// TestUrgentWithoutPlane drains a backend, at all VIPs or at one, where nothing forwards to it: that is nothing to a node without a data plane, and to one that
// waits for its documents, unless a data plane is here. What else is asked for says why it is not done.
func TestUrgentWithoutPlane(t *testing.T) {
	testbed.InNamespace(t)
	changes := []agent.Held{held(1, "lb drain", `{"backend":"10.0.0.11"}`), held(2, "lb drain", `{"vip":"203.0.113.1:80/tcp","backend":"10.0.0.11"}`),
		held(3, "filter add", `{"rule":"r","action":"drop","expression":"udp"}`), held(4, "filter flush", `{}`)}
	p := &process{}
	p.now.Store(&up{})
	w := waiting{why: errWaiting}
	expect := func(what string, plane agent.Plane, drain, others error) {
		t.Helper()
		got := plane.Urgent(t.Context(), changes)
		for n, want := range []error{drain, drain, others} {
			if err := got[changes[n].ID]; !errors.Is(err, want) {
				t.Errorf("%s: %s: %v, want %v", what, changes[n].Words, err, want)
			}
		}
		if err := got[changes[3].ID]; len(got) != len(changes) || err == nil || errors.Is(err, agent.ErrUnconcerned) {
			t.Errorf("%s: %v", what, got)
		}
	}
	expect("without a data plane", &clusterPlane{process: p}, agent.ErrUnconcerned, errNoPlane)
	expect("waiting", &w, agent.ErrUnconcerned, errWaiting)
	newUrgentBed(t)
	expect("waiting beside a data plane", &w, errWaiting, errWaiting)
}

// TestUrgentAttach attaches without a process while urgent changes are in force that a process has carried out: they stay, without the one whose
// time is over.
func TestUrgentAttach(t *testing.T) {
	m, path := newMember(t, "http://127.0.0.1:1", urgentFile)
	testbed.AddVeth(t, "nu0", "nu1")
	testbed.IP(t, "addr add 10.0.0.1/24 dev nu0")
	b := &urgentBed{T: t, member: m, up: new(up)}
	t.Cleanup(func() {
		b.up.close()
		b.close()
		if err := DetachAll(io.Discard); err != nil {
			t.Error(err)
		}
	})
	attach := func() {
		t.Helper()
		b.up.close()
		b.close()
		err := Attach(t.Context(), path, nil, io.Discard)
		if err == nil {
			b.up.inst, err = datapath.OpenHere("node-urgent-test")
		}
		if err == nil {
			b.member, err = joinCluster(path, slog.New(slog.DiscardHandler))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	attach()
	base := b.has()
	ended := each[5].held
	ended.Until = 1
	stay := []agent.Held{each[2].held, each[3].held, each[8].held}
	b.carry("by a process", append(stay, ended)...)
	attach()
	if all := b.keeper.Held(); len(all) != len(stay) {
		t.Errorf("%d changes are known to be in force, want %d", len(all), len(stay))
	}
	has := b.has()
	for _, n := range []int{2, 3, 8} {
		if !strings.Contains(has, each[n].text) {
			t.Errorf("%q is not there:\n%s", each[n].text, has)
		}
	}
	if strings.Contains(has, each[5].text) {
		t.Errorf("%q is still there:\n%s", each[5].text, has)
	}
	if !slices.Contains(b.options(slog.New(slog.DiscardHandler)).Over, agent.OverOf(ended.Urgent)) {
		t.Errorf("the next process would carry it out again: it knows of %v", b.over)
	}
	b.carry("none")
	if has := b.has(); has != base {
		t.Errorf("at the end there is\n%s, want\n%s", has, base)
	}
}
