// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"strings"
	"testing"
	"time"

	"culvert/internal/cluster"
	"culvert/internal/edit"
	"culvert/internal/show/usage"
)

var everywhere = cluster.Scope{Kind: cluster.ScopeAll}

func rule(name string) edit.Request {
	icmp := "icmp"
	return &edit.RuleAdd{Rule: name, Action: "drop", Expression: &icmp}
}

// TestUrgent carries changes out on the nodes that are meant, and takes them back.
func TestUrgent(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("lb1:lb", "lb2:lb", "f1:filter")
	r, err := b.Urgent(t.Context(), rule("one"), cluster.Scope{Kind: cluster.ScopeRole, Name: "lb"}, 0, false)
	if err != nil || r.Err() != nil || strings.Join(r.Done, " ") != "lb1 lb2" {
		t.Fatalf("reached %+v, error %v", r, err)
	}
	b.with("f1", func(n *fakeNode) { n.failing = true })
	second, err := b.Urgent(t.Context(), rule("two"), everywhere, time.Minute, false)
	if err != nil || second.Failed["f1"] != "no set bad" || second.Err() == nil {
		t.Errorf("reached %+v, error %v", second, err)
	}
	if second.ID <= r.ID {
		t.Errorf("ID %s after %s", second.ID, r.ID)
	}
	all, err := b.Urgents(t.Context())
	if err != nil || len(all) != 2 || all[0].Left != 0 || all[1].Left < 50 || all[1].Left > 60 || all[1].By != "me@here" || all[1].Words != "filter add" {
		t.Errorf("%+v, error %v", all, err)
	}
	if r, err = b.Undo(t.Context(), strings.TrimLeft(second.ID, "0")); err != nil || len(r.Missing) > 0 || !strings.Contains(r.Lines()[0], ": taken back on 3 of 3 nodes") {
		t.Errorf("reached %+v, error %v", r, err)
	}
	done, err := b.UndoSame(t.Context(), rule("one"), cluster.Scope{Kind: cluster.ScopeRole, Name: "lb"})
	if err != nil || len(done) != 1 {
		t.Errorf("%d taken back, error %v", len(done), err)
	}
	if _, err := b.Undo(t.Context(), second.ID); err == nil || !strings.Contains(err.Error(), "there is no urgent change "+second.ID) {
		t.Errorf("error %v", err)
	}
	h, err := b.History(t.Context(), true)
	if err != nil || len(h.Audit) != 4 || h.Audit[1].Outcome != "failed" || h.Audit[3].Did != "undo" {
		t.Errorf("%+v, error %v", h, err)
	}
	for _, text := range []string{strings.Join(UrgentLines(all), "\n"), strings.Join(h.Lines(), "\n")} { // as it was typed
		if !strings.Contains(text, "filter add drop icmp --name two") || strings.ContainsAny(text, "{}") {
			t.Errorf("for people:\n%s", text)
		}
	}
}

// TestUrgentWords has the words that a fleet's verbs have for what is typed otherwise on one machine.
func TestUrgentWords(t *testing.T) {
	for _, c := range []struct{ words, request, want string }{
		{"filter set add", `{"set":"bad","entries":["192.0.2.1"]}`, "set add bad 192.0.2.1"},
		{"lb drain", `{"backend":"10.0.0.11"}`, "drain 10.0.0.11"},
		{"lb drain", `{"vip":"192.0.2.1:80/tcp","backend":"10.0.0.11"}`, "lb drain 192.0.2.1:80/tcp 10.0.0.11"},
	} {
		if got := commandLine(cluster.Urgent{Words: c.words, Request: []byte(c.request)}); got != c.want {
			t.Errorf("%s %s is %q, want %q", c.words, c.request, got, c.want)
		}
	}
}

// TestUrgentMissing wants a node that says nothing to be listed after UrgentWait.
func TestUrgentMissing(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a", "b", "c")
	if err := b.apply(doc("one")); err != nil {
		t.Fatal(err)
	}
	b.with("b", func(n *fakeNode) { n.deaf = true })
	b.lose("c")
	begun := time.Now()
	r, err := b.Urgent(t.Context(), rule("one"), everywhere, 0, false)
	if err != nil || strings.Join(r.Done, " ") != "a" || strings.Join(r.Missing, " ") != "b" || strings.Join(r.Away, " ") != "c" || time.Since(begun) < UrgentWait {
		t.Errorf("reached %+v after %s, error %v", r, time.Since(begun), err)
	}
	if text := strings.Join(r.Lines(), "\n"); !strings.Contains(text, "b: no answer") || !strings.Contains(text, "not there: c") {
		t.Errorf("said\n%s", text)
	}
	s, err := b.Status(t.Context())
	if err != nil || !strings.Contains(strings.Join(s.Differs, "\n"), "b does not have urgent change "+r.ID+" yet") {
		t.Errorf("%+v, error %v", s, err)
	}
}

// TestUrgentEnds wants a change for a time to end by itself.
func TestUrgentEnds(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a")
	r, err := b.Urgent(t.Context(), rule("one"), everywhere, time.Second, false)
	if err != nil || r.Err() != nil {
		t.Fatalf("%+v, error %v", r, err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		states, err := b.States(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(states["a"].Urgent) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("it is in force for more than 30 s")
		}
	}
}

// TestUrgentUnconcerned drains a backend that a filter does not have: it counts as neither reached nor failed. If nobody has it, that is an error.
func TestUrgentUnconcerned(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("f", "lb")
	b.with("f", func(n *fakeNode) { n.unconcerned = true })
	backend := "10.0.0.11"
	r, err := b.Urgent(t.Context(), &edit.Drain{Backend: &backend}, everywhere, 0, false)
	if err != nil || r.Err() != nil || strings.Join(r.Nodes, " ") != "lb" || !strings.Contains(strings.Join(r.Lines(), "\n"), "on 1 of 1 node") ||
		!strings.Contains(strings.Join(r.Lines(), "\n"), "not concerned: f") {
		t.Errorf("reached %+v, error %v", r, err)
	}
	if s, err := b.Status(t.Context()); err != nil || len(s.Differs) > 0 {
		t.Errorf("%+v, error %v", s, err)
	}
	if r, err = b.Undo(t.Context(), r.ID); err != nil || r.Err() != nil || len(r.Unconcerned) > 0 {
		t.Errorf("taken back from %+v, error %v", r, err)
	}
	b.with("lb", func(n *fakeNode) { n.unconcerned = true })
	if r, err = b.Urgent(t.Context(), &edit.Drain{Backend: &backend}, everywhere, 0, false); err != nil || r.Err() == nil ||
		!strings.Contains(r.Err().Error(), "no node has what it is about") {
		t.Errorf("reached %+v, error %v", r, err)
	}
}

// TestUrgentOver has a change whose time is over by the clocks of nodes, although etcd has given its lease time again.
func TestUrgentOver(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a", "b")
	r, err := b.Urgent(t.Context(), rule("one"), everywhere, time.Hour, false)
	if err != nil || r.Err() != nil {
		t.Fatalf("%+v, error %v", r, err)
	}
	over := func(n *fakeNode) { n.Urgent, n.UrgentOver = nil, []string{r.ID} }
	for _, want := range []struct{ node, left string }{{"a", ", over on a"}, {"b", "  over  "}} {
		b.with(want.node, over)
		all, err := b.Urgents(t.Context())
		if text := strings.Join(UrgentLines(all), "\n"); err != nil || !strings.Contains(text, want.left) {
			t.Errorf("over on %s: %s, error %v", want.node, text, err)
		}
	}
	s, err := b.Status(t.Context())
	if err != nil || len(s.Differs) > 0 {
		t.Errorf("%+v, error %v", s, err)
	}
}

func TestUrgentRefused(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a:lb")
	bad := &edit.RuleAdd{Rule: "x", Action: "drop"}
	if _, err := b.Urgent(t.Context(), bad, everywhere, 0, false); !usage.Is(err) {
		t.Errorf("a rule that drops everything: %v", err)
	}
	if _, err := b.Urgent(t.Context(), rule("x"), everywhere, time.Millisecond, false); !usage.Is(err) {
		t.Errorf("for a millisecond: %v", err)
	}
	if _, err := b.Urgent(t.Context(), rule("x"), cluster.Scope{Kind: cluster.ScopeRole, Name: "edge"}, 0, false); err == nil || !strings.Contains(err.Error(), "has the role edge") {
		t.Errorf("a role that nobody has: %v", err)
	}
	big := &edit.SetAdd{SetEntries: edit.SetEntries{Set: "s"}}
	for range 30000 {
		big.Entries = append(big.Entries, "192.0.2.1")
	}
	if _, err := b.Urgent(t.Context(), big, everywhere, 0, false); err == nil || !strings.Contains(err.Error(), "culvert fleet apply") {
		t.Errorf("a large one: %v", err)
	}
	if all, err := b.Urgents(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("%d urgent changes, error %v", len(all), err)
	}
}

// TestUrgentByHand has keys by hand, which keep the others from being listed no more than the fleet from being looked at. The order is that
// of numbers.
func TestUrgentByHand(t *testing.T) {
	t.Parallel()
	b := newBed(t) // no nodes: the records are none
	for _, id := range []string{"100000000", "99999999", "by hand"} {
		if _, err := b.etcd.Put(t.Context(), b.keys.Urgent(id), "no record"); err != nil {
			t.Fatal(err)
		}
	}
	all, err := b.Urgents(t.Context())
	if err != nil || len(all) != 3 || all[1].ID != "99999999" || all[2].ID != "100000000" {
		t.Errorf("%+v, error %v", all, err)
	}
	if text := strings.Join(UrgentLines(all), "\n"); strings.Contains(text, "0001-01-01") || strings.Count(text, "no record of culvert's") != 3 {
		t.Errorf("listed as\n%s", text)
	}
	if _, err := b.Status(t.Context()); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"100000000", "99999999", "by hand"} {
		if r, err := b.Undo(t.Context(), id); err != nil || !strings.Contains(strings.Join(r.Lines(), "\n"), id+": taken away") {
			t.Errorf("%+v, error %v", r, err)
		}
	}
	if all, err := b.Urgents(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("%+v, error %v", all, err)
	}
}

// TestSeeds has balancers that announce the same VIP with other rings. Nodes of other roles and VIPs may have what they like.
func TestSeeds(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a:lb", "b:lb", "c:lb", "d:other", "e:lb")
	seeds := func(seeds ...string) {
		for n, seed := range seeds {
			b.with(string(rune('a'+n)), func(f *fakeNode) { f.Seed, f.RingSize, f.Announced = seed, 65537, []string{"203.0.113.80"} })
		}
		b.with("e", func(f *fakeNode) { f.Seed, f.RingSize, f.Announced, f.Maintain = "99", 65537, nil, "safe" })
	}
	rings := func() (lines []string) {
		t.Helper()
		s, err := b.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range s.Differs {
			if strings.HasPrefix(d, "rings") {
				lines = append(lines, d)
			}
		}
		return lines
	}
	seeds("01", "01", "01", "02")
	if got := rings(); len(got) > 0 {
		t.Errorf("the same rings: %q", got)
	}
	seeds("01", "02", "01", "02")
	want := "rings of lb: seed 01 on a, c; seed 02 on b: flows to 203.0.113.80 that go to another node get another backend; 'culvert lb seed' prints one's seed for the others"
	if got := rings(); len(got) != 1 || got[0] != want {
		t.Errorf("other seeds: %q", got)
	}
	seeds("01", "01", "01", "02")
	b.with("c", func(f *fakeNode) { f.RingSize = 4093 })
	if got := rings(); len(got) != 1 || !strings.Contains(got[0], "rings of lb: seed 01, 4093 places on c; seed 01, 65537 places on a, b: flows to 203.0.113.80 ") {
		t.Errorf("other sizes: %q", got)
	}
}

// TestInMaintenance lists nodes in maintenance, with what ends it.
func TestInMaintenance(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a", "b")
	b.with("a", func(f *fakeNode) { f.Maintain = cluster.MaintainSafe })
	s, err := b.Status(t.Context())
	if err != nil || !strings.Contains(strings.Join(s.Lines(), "\n"), "good, maintenance (safe)") || len(s.Differs) != 1 ||
		s.Differs[0] != "a is in maintenance (safe): 'culvert fleet resume a' ends it" {
		t.Errorf("%+v, error %v", s, err)
	}
}

// TestSources lists the sources of backends whose last answer is not in force, and which nodes say so.
func TestSources(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a", "b", "c")
	for name, why := range map[string]string{"a": "failing: no such host", "b": "failing: timeout", "c": "held: half of the backends would go"} {
		b.with(name, func(f *fakeNode) { f.Sources = map[string]string{"web of VIP 203.0.113.80:80/tcp": why} })
	}
	s, err := b.Status(t.Context())
	want := []string{
		"source web of VIP 203.0.113.80:80/tcp is failing on a, b: no such host",
		"source web of VIP 203.0.113.80:80/tcp is held on c: half of the backends would go",
	}
	if err != nil || strings.Join(s.Differs, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q, error %v", s.Differs, err)
	}
}

// TestTwin has another process with the name of a node, as its key says. One that has taken over the name meanwhile is none.
func TestTwin(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a", "b")
	b.with("a", func(n *fakeNode) { n.Host = "h1" })
	for key, text := range map[string]string{
		b.keys.Twin("a"): `{"host":"h2","instance":"other"}`, b.keys.Twin("b"): `{"host":"h2","instance":"b"}`, b.keys.Answer("a", "twin/7"): "{}",
	} {
		if _, err := b.etcd.Put(t.Context(), key, text); err != nil {
			t.Fatal(err)
		}
	}
	s, err := b.Status(t.Context())
	want := "a is on host h1, and another process on host h2 has the name a too, and follows no revisions: give it another name"
	if err != nil || len(s.Differs) != 1 || s.Differs[0] != want {
		t.Errorf("%q, error %v", s.Differs, err)
	}
}

// TestOwnDocument has two nodes of the same roles with different documents. That is told, unless one of them has a document of its own.
func TestOwnDocument(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a:lb", "b:lb")
	differs := func() bool {
		t.Helper()
		b.with("a", func(n *fakeNode) { n.Digest = "0a" })
		b.with("b", func(n *fakeNode) { n.Digest = "0b" })
		s, err := b.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(strings.Join(s.Differs, "\n"), "documents of lb: 0a on a; 0b on b")
	}
	if err := b.apply(doc("one")); err != nil || !differs() {
		t.Errorf("different documents are not told, error %v", err)
	}
	own := doc("two")
	own.Scope = cluster.Scope{Kind: cluster.ScopeNode, Name: "b"}
	if err := b.apply(own); err != nil || differs() {
		t.Errorf("a document of its own is told, error %v", err)
	}
}

// TestUrgentAudit wants the audit to say for how long a change was made, also of one that is taken back.
func TestUrgentAudit(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a")
	for lasts, want := range map[time.Duration]string{
		0: "", 30 * time.Second: " --for 30s", 10 * time.Minute: " --for 10m", time.Hour: " --for 1h", 90 * time.Second: " --for 1m30s", time.Hour + 30*time.Second: " --for 1h0m30s",
	} {
		r, err := b.Urgent(t.Context(), rule("one"), everywhere, lasts, false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Undo(t.Context(), r.ID); err != nil {
			t.Fatal(err)
		}
		h, err := b.History(t.Context(), true)
		if err != nil || len(h.Audit) < 2 {
			t.Fatalf("error %v, audit %+v", err, h)
		}
		for _, a := range h.Audit[len(h.Audit)-2:] {
			if line, _, _ := strings.Cut(a.On, " --for"); a.On != line+want || !strings.Contains(line, "filter add") {
				t.Errorf("for %s: %s %s, want the end %q", lasts, a.Did, a.On, want)
			}
		}
	}
}
