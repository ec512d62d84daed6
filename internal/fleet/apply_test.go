// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/cluster"
	"culvert/internal/show/usage"
)

// TestApply brings a revision to all nodes in steps, changes one role's document, and goes back.
func TestApply(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("lb1:lb", "lb2:lb", "f1:filter", "f2:filter")
	if err := b.apply(doc("one")); err != nil {
		t.Fatalf("%v\n%s", err, b.out)
	}
	for _, name := range []string{"lb1", "lb2", "f1", "f2"} {
		if got := b.ran(name); got != "[1]" {
			t.Errorf("%s ran %s", name, got)
		}
	}
	if !strings.Contains(b.out.String(), "4 of 4 nodes in 3 steps") || !strings.Contains(b.out.String(), "step 1 of 3 (f1): 1 of 1 nodes") {
		t.Errorf("said:\n%s", b.out)
	}
	role := Change{Scope: cluster.Scope{Kind: cluster.ScopeRole, Name: "lb"}, File: "lb.toml", Text: "[[filter.rule]]\nname = \"two\"\naction = \"count\"\nexpression = \"udp\"\n"}
	if err := b.apply(role); err != nil {
		t.Fatalf("%v\n%s", err, b.out)
	}
	if !strings.Contains(b.out.String(), "2 of 4 nodes in 2 steps") {
		t.Errorf("said:\n%s", b.out)
	}
	docs, err := b.Documents(t.Context(), 2)
	if err != nil || docs["all"] != doc("one").Text || docs["role/lb"] != role.Text {
		t.Errorf("documents %v, error %v", docs, err)
	}
	if err := b.apply(role); err != nil || !strings.Contains(b.out.String(), "nothing differs from revision 2") {
		t.Errorf("error %v, said:\n%s", err, b.out)
	}
	if err := b.Rollback(t.Context(), Before, quick(), b.say); err != nil {
		t.Fatal(err)
	}
	if c := b.current(); c.Revision != 1 || c.Rollout != nil {
		t.Errorf("current %+v", c)
	}
	for name, want := range map[string]string{"lb1": "[1 2 1]", "f2": "[1 2 1]"} {
		if got := b.ran(name); got != want {
			t.Errorf("%s ran %s, want %s", name, got, want)
		}
	}
}

// TestCanaryFails has a step fail in each way, and wants the nodes behind it never to have run the revision.
func TestCanaryFails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, why string
		fail      func(*fakeNode)
	}{
		{"refused", "a: refused: etcd:all:1:1: no stage is on", func(n *fakeNode) { n.refuse = []int64{2} }},
		{"bad health", "a: in bad health: no backend is up", func(n *fakeNode) { n.sicken = []int64{2} }},
		{"never runs it", "a: runs revision 1 after 1s", func(n *fakeNode) { n.slow = []int64{2} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.add("a", "b", "c")
			if err := b.apply(doc("one")); err != nil {
				t.Fatalf("%v\n%s", err, b.out)
			}
			b.with("a", tt.fail)
			err := b.apply(doc("two"))
			var back *BackError
			if !errors.As(err, &back) || back.Why != tt.why {
				t.Fatalf("error %v\n%s", err, b.out)
			}
			if c := b.current(); c.Revision != 1 || c.Rollout != nil {
				t.Errorf("current %+v", c)
			}
			for _, name := range []string{"b", "c"} {
				if got := b.ran(name); got != "[1]" {
					t.Errorf("%s ran %s", name, got)
				}
			}
			if h, err := b.History(t.Context(), false); err != nil || !strings.Contains(strings.Join(h.Lines(), "\n"), "\n2 went back  ") || !strings.Contains(strings.Join(h.Lines(), "\n"), "\n1 runs  ") {
				t.Errorf("error %v, history:\n%s", err, strings.Join(h.Lines(), "\n"))
			}
			// The number of a revision is never used again.
			b.with("a", func(n *fakeNode) { n.refuse, n.sicken, n.slow = nil, nil, nil })
			if err := b.apply(doc("three")); err != nil || b.current().Revision != 3 {
				t.Errorf("error %v, current %+v\n%s", err, b.current(), b.out)
			}
		})
	}
}

// TestCanaryDies wants a node that goes away under a revision to take it back, and one that was away before to stop nothing.
func TestCanaryDies(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a", "b", "c")
	if err := b.apply(doc("one")); err != nil {
		t.Fatal(err)
	}
	b.lose("c")
	done := make(chan error, 1)
	go func() { done <- b.apply(doc("two")) }()
	b.until("a", 2)
	b.lose("a")
	err := <-done
	if err == nil || !strings.Contains(err.Error(), "a: it is not there any more") {
		t.Errorf("error %v\n%s", err, b.out)
	}
	if !strings.Contains(b.out.String(), "not there: c;") {
		t.Errorf("said:\n%s", b.out)
	}
}

// TestRefusedBefore wants what cannot be right anywhere to be refused before anything is written.
func TestRefusedBefore(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("lb1:lb", "f1:filter")
	all := func(text string) Change {
		return Change{Scope: cluster.Scope{Kind: cluster.ScopeAll}, File: "all.toml", Text: text}
	}
	role := func(name, text string) Change {
		return Change{Scope: cluster.Scope{Kind: cluster.ScopeRole, Name: name}, File: name + ".toml", Text: text}
	}
	for _, tt := range []struct {
		name     string
		changes  []Change
		err, out string
	}{
		{"no TOML", []Change{all("[filter\n")}, "1 error: nothing was written; wrong for f1, lb1", "all.toml:1:"},
		{"an unknown key", []Change{all("[filtre]\n")}, "wrong for f1, lb1", `all.toml:1:2: unknown key "filtre"`},
		{"a rule that does not compile", []Change{all("[[filter.rule]]\nname = \"a\"\naction = \"drop\"\nexpression = \"tcp prot 80\"\n")}, "1 error", "all.toml:4:"},
		{"a VIP of no protocol", []Change{all("[[lb.vip]]\naddress = \"192.0.2.1:80\"\n")}, "1 error", "protocol is missing"},
		{"a secret", []Change{all("[lb]\nseed = \"s3cret\"\n")}, "1 error", "all.toml:2:8: lb.seed is a secret"},
		{"a password", []Change{all("[[lb.bgp.neighbor]]\naddress = \"10.0.0.9\"\nasn = 65001\npassword = \"s3cret\"\n")}, "1 error",
			"all.toml:4:12: neighbor 10.0.0.9: password in a document of the cluster"},
		{"wrong for some", []Change{all("log_level = \"info\"\n"), role("lb", "log_level = \"warn\"\n")}, "wrong for lb1, and right for 1 other",
			"lb.toml:1:13: log_level is set at all.toml:1:13 already"},
		{"a role that nobody has", []Change{role("edge", "[filter]\n")}, "no node that is there has the role edge: they have filter, lb; --force", ""},
		{"two of one scope", []Change{all("[filter]\n"), all("[route]\n")}, "two documents for all", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := b.apply(tt.changes...)
			if err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(b.out.String(), tt.out) {
				t.Errorf("error %v, said:\n%s", err, b.out)
			}
		})
	}
	r, err := b.Revisions(t.Context())
	if err != nil || len(r) > 0 || b.current() != (cluster.Current{}) {
		t.Errorf("%d revisions, error %v", len(r), err)
	}
	// What the file of a node may have is no error.
	if err := b.apply(all("[lb.bgp]\nrouter_id = \"10.0.0.1\"\n[[filter.rule]]\nname = \"a\"\naction = \"drop\"\nsrc = \"@known\"\n")); err != nil {
		t.Errorf("%v\n%s", err, b.out)
	}
	// As a question, these would be more than etcd takes at once.
	if err := b.apply(all("#" + strings.Repeat(`"`, 800_000) + "\n")); err != nil || !strings.Contains(b.out.String(), "not checked by nodes before it is written") {
		t.Errorf("many documents: %v\n%s", err, b.out)
	}
}

// TestBeside has a file for all nodes that does not go with the document of a role. The line names the file, and not the old document alone.
func TestBeside(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a:edge")
	if err := b.apply(role("edge", "ntp")); err != nil {
		t.Fatalf("%v\n%s", err, b.out)
	}
	err := b.apply(doc("ntp"))
	if want := "etcd:role/edge:2:8: a second rule ntp (with all.toml for all, beside role/edge)"; err == nil || !strings.Contains(b.out.String(), want) {
		t.Errorf("error %v, said:\n%s", err, b.out)
	}
}

// TestInterrupted stops a rollout after its first step, as if the operator's machine had died, and wants it to be refused, resumed and taken back.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a", "b", "c")
	stop := func(rule string, revision int64) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		steps := quick()
		steps.Wait = time.Minute
		go func() { done <- b.Apply(ctx, Apply{Changes: []Change{doc(rule)}, Steps: steps}, b.say) }()
		b.until("a", revision)
		err := New(b.etcd, "test", "you@there").Apply(t.Context(), Apply{Changes: []Change{doc("other")}, Steps: steps}, b.say)
		var locked *LockedError
		if !errors.As(err, &locked) || locked.Holder.By != "me@here" {
			t.Errorf("a second one: %v", err)
		}
		const going, stopped = "by me@here is at step 1 of 2", "by me@here has stopped at step 1 of 2: 'culvert fleet apply --resume' goes on, 'culvert fleet rollback' goes back"
		status := func(want string) {
			t.Helper()
			s, err := b.Status(t.Context())
			if text := strings.Join(s.Lines(), "\n"); err != nil || !strings.Contains(text, want) {
				t.Errorf("error %v, status without %q:\n%s", err, want, text)
			}
		}
		status(going)
		defer status(stopped)
		cancel()
		if err := <-done; err == nil || !strings.Contains(err.Error(), "stays at step 1 of 2") {
			t.Errorf("error %v", err)
		}
	}
	stop("one", 1)
	if err := b.apply(doc("two")); err == nil || !strings.Contains(err.Error(), "has stopped at step 1 of 2") {
		t.Errorf("an apply between: %v", err)
	}
	c := b.current()
	c.Rollout.Wait = 100 * time.Millisecond
	if err := b.put(t.Context(), b.keys.Current(), c); err != nil {
		t.Fatal(err)
	}
	if err := b.Resume(t.Context(), b.say); err != nil {
		t.Fatal(err)
	}
	if c := b.current(); c.Revision != 1 || c.Rollout != nil || b.ran("c") != "[1]" {
		t.Errorf("current %+v", c)
	}
	stop("two", 2)
	if err := b.Rollback(t.Context(), Before, quick(), b.say); err != nil {
		t.Fatal(err)
	}
	if c := b.current(); c.Revision != 1 || c.Rollout != nil || b.ran("a") != "[1 2 1]" || b.ran("c") != "[1]" {
		t.Errorf("current %+v, a ran %s, c %s", c, b.ran("a"), b.ran("c"))
	}
	if h, err := b.History(t.Context(), false); err != nil || !slices.Equal(h.Back, []int64{2}) || len(h.Audit) > 0 {
		t.Errorf("%+v, error %v", h, err)
	}
}

// TestLockLost wants nothing to be written by somebody whose lease has ended.
func TestLockLost(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	l, err := b.lock(t.Context(), "apply")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.etcd.Revoke(t.Context(), l.session.Lease()); err != nil {
		t.Fatal(err)
	}
	if err := l.writeCurrent(t.Context(), cluster.Current{Revision: 7}); !errors.Is(err, errLost) || b.current().Revision != 0 {
		t.Errorf("error %v, current %+v", err, b.current())
	}
}

func TestStepsCheck(t *testing.T) {
	for _, text := range []string{"", "0", "x", "101%", "-1", "0%"} {
		s := quick()
		s.Step = text
		if err := s.Check(); !usage.Is(err) {
			t.Errorf("step %q: %v", text, err)
		}
	}
}

// TestSourceOfCluster applies a document with backends from the cluster's etcd, which it does not name: each node's own file does.
func TestSourceOfCluster(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a:lb")
	c := Change{Scope: cluster.Scope{Kind: cluster.ScopeRole, Name: "lb"}, File: "lb.toml", Text: `[[lb.vip]]
address = "203.0.113.80:80"
protocol = "tcp"
[[lb.vip.source]]
kind = "etcd"
prefix = "/culvert/test/backends/web/"
`}
	if err := b.apply(c); err != nil || b.current().Revision != 1 {
		t.Errorf("%v\n%s", err, b.out)
	}
	c.Text += "ca = \"ca.pem\"\n"
	if err := b.apply(c); err == nil || !strings.Contains(b.out.String(), "endpoints are missing beside ca, cert or key") {
		t.Errorf("with the authority of another etcd: %v\n%s", err, b.out)
	}
}

// TestApplyEmpty wants an empty file to take a document away only with --force, which is said, also in the audit. Without a document it is no change.
func TestApplyEmpty(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a:edge", "b:edge", "c")
	for _, c := range []Change{doc("one"), role("edge", "two")} {
		if err := b.apply(c); err != nil {
			t.Fatalf("%v\n%s", err, b.out)
		}
	}
	gone := role("edge", "")
	gone.Text = " \n"
	err := b.apply(gone)
	if err == nil || err.Error() != "edge.toml is empty, which takes role/edge away from a, b: nothing was written; --force does it" || b.current().Revision != 2 {
		t.Errorf("error %v, current %+v", err, b.current())
	}
	force := func(changes ...Change) {
		t.Helper()
		b.out.Reset()
		if err := b.Apply(t.Context(), Apply{Changes: changes, Steps: quick(), Force: true}, b.say); err != nil {
			t.Errorf("%v\n%s", err, b.out)
		}
	}
	force(gone, doc("three"))
	const did = "revision 3: all, takes role/edge away"
	h, err := b.History(t.Context(), true)
	if err != nil || len(h.Audit) != 3 || h.Audit[2].On != did || !strings.Contains(b.out.String(), did+"\n") {
		t.Errorf("error %v, audit %+v, said %s", err, h, b.out)
	}
	if docs, err := b.Documents(t.Context(), 3); err != nil || len(docs) != 1 || docs["all"] != doc("three").Text {
		t.Errorf("documents %v, error %v", docs, err)
	}
	if err := b.apply(gone); err != nil || b.current().Revision != 3 || !strings.Contains(b.out.String(), "nothing differs") {
		t.Errorf("once more: error %v, current %+v, said %s", err, b.current(), b.out)
	}
}
