// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strings"
	"testing"

	"culvert/internal/cluster"
	"culvert/internal/cluster/access"
)

// byHand writes a key as an operator with etcdctl does.
func (b *bed) byHand(key, value string) {
	b.Helper()
	if _, err := b.etcd.Put(b.Context(), b.keys.Prefix()+key, value); err != nil {
		b.Fatal(err)
	}
}

func role(name, rule string) Change {
	c := doc(rule)
	c.Scope, c.File = cluster.Scope{Kind: cluster.ScopeRole, Name: name}, name+".toml"
	return c
}

// says wants what 'history' and 'status' show to have a text.
func (b *bed) says(want string) {
	b.Helper()
	h, err := b.History(b.Context(), true)
	if err != nil || !strings.Contains(strings.Join(h.Lines(), "\n"), want) {
		b.Errorf("history does not say %q: %+v, error %v", want, h, err)
	}
	s, err := b.Status(b.Context())
	if err != nil || !strings.Contains(strings.Join(s.Lines(), "\n"), want) {
		b.Errorf("status does not say %q: %+v, error %v", want, s, err)
	}
}

// TestDocumentByHand has a document of the revision that runs changed by hand. It is named, and both rollback and apply get out.
func TestDocumentByHand(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a:edge", "b:edge")
	for _, c := range []Change{doc("one"), role("edge", "two"), role("edge", "three")} {
		if err := b.apply(c); err != nil {
			t.Fatalf("%v\n%s", err, b.out)
		}
	}
	damage := func(number string) {
		t.Helper()
		b.byHand("config/"+number+"/role/edge", "no TOML")
		b.says("the key config/" + number + "/role/edge has been changed by hand")
		if err := b.apply(doc("four")); err == nil || !strings.Contains(err.Error(), "config/"+number+"/role/edge has been changed by hand") {
			t.Errorf("a document that nobody gives anew goes along: %v", err)
		}
	}
	damage("0000000000000003")
	if _, err := b.DiffChanges(t.Context(), []Change{role("edge", "four")}); err != nil {
		t.Errorf("diff: %v", err)
	}
	if err := b.Rollback(t.Context(), Before, quick(), b.say); err != nil || b.current().Revision != 2 {
		t.Errorf("rollback: %v, current %+v", err, b.current())
	}
	if err := b.Rollback(t.Context(), 3, quick(), b.say); err == nil || !strings.Contains(err.Error(), "revision 3 is not as it was written") {
		t.Errorf("rollback to what is damaged: %v", err)
	}
	damage("0000000000000002")
	if err := b.apply(role("edge", "four")); err != nil || b.current().Revision != 4 {
		t.Errorf("apply: %v, current %+v\n%s", err, b.current(), b.out)
	}
	docs, err := b.Documents(t.Context(), 4)
	if err != nil || docs["all"] != doc("one").Text || docs["role/edge"] != role("edge", "four").Text {
		t.Errorf("documents %v, error %v", docs, err)
	}
	b.byHand("config/0000000000000004/role/edge", "no TOML") // an empty file takes it away, also if nobody knows what it was
	gone := role("edge", "")
	gone.Text = ""
	if err := b.Apply(t.Context(), Apply{Changes: []Change{gone}, Steps: quick(), Force: true}, b.say); err != nil || b.current().Revision != 5 {
		t.Errorf("apply: %v, current %+v\n%s", err, b.current(), b.out)
	}
	b.byHand("config/0000000000000005/role/lb", "x = 1")
	b.says("config/0000000000000005/role/lb has been added by hand")
	if err := b.apply(doc("six")); err != nil || b.current().Revision != 6 {
		t.Errorf("apply: %v, current %+v\n%s", err, b.current(), b.out)
	}
}

// TestRevisionByHand has records of revisions that are none.
func TestRevisionByHand(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a")
	for _, rule := range []string{"one", "two", "three"} {
		if err := b.apply(doc(rule)); err != nil {
			t.Fatalf("%v\n%s", err, b.out)
		}
	}
	b.byHand("revision/3", "{}")
	b.byHand("revision/x", "{}")
	h, err := b.History(t.Context(), false)
	if text := strings.Join(h.Lines(), "\n"); err != nil || strings.Contains(text, "0001-01-01") || !strings.Contains(text, "the key revision/3 is no record of culvert's") {
		t.Errorf("error %v, history:\n%s", err, text)
	}
	if err := b.Rollback(t.Context(), 1, quick(), b.say); err != nil {
		t.Fatal(err)
	}
	if err := b.apply(doc("four")); err != nil || b.current().Revision != 4 { // 3 has been one
		t.Errorf("apply: %v, current %+v\n%s", err, b.current(), b.out)
	}
	b.byHand("revision/0000000000000004", "{}")
	b.says("the key revision/0000000000000004 is no record of culvert's")
	if err := b.Rollback(t.Context(), Before, quick(), b.say); err == nil || !strings.Contains(err.Error(), "'culvert fleet rollback REV'") {
		t.Errorf("nobody knows which was before: %v", err)
	}
	if err := b.apply(role("lb", "five")); err == nil || !strings.Contains(err.Error(), "apply all=FILE") {
		t.Errorf("documents that nobody vouches for go along: %v", err)
	}
	if err := b.Rollback(t.Context(), 2, quick(), b.say); err != nil || b.current().Revision != 2 {
		t.Errorf("rollback: %v, current %+v", err, b.current())
	}
	if got := b.ran("a"); got != "[1 2 3 1 4 2]" {
		t.Errorf("a ran %s", got)
	}
}

// TestCurrentByHand has the key current damaged.
func TestCurrentByHand(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a", "b")
	for _, rule := range []string{"one", "two"} {
		if err := b.apply(doc(rule)); err != nil {
			t.Fatalf("%v\n%s", err, b.out)
		}
	}
	b.byHand("current", "nonsense")
	b.says("the key current is no record of culvert's")
	if err := b.Resume(t.Context(), b.say); err == nil || !strings.Contains(err.Error(), "'culvert fleet rollback REV'") {
		t.Errorf("resume: %v", err)
	}
	if err := b.Rollback(t.Context(), 1, quick(), b.say); err != nil || b.current() != (cluster.Current{Revision: 1}) {
		t.Errorf("rollback: %v, current %+v", err, b.current())
	}
	b.byHand("current", `{"revision": -7}`)
	if err := b.apply(doc("three")); err != nil || b.current() != (cluster.Current{Revision: 3}) || !strings.Contains(b.out.String(), "from revision 1, which nodes run") {
		t.Errorf("apply: %v, current %+v\n%s", err, b.current(), b.out)
	}
	b.byHand("current", "nonsense")
	b.with("b", func(n *fakeNode) { n.Revision = 2 })
	if err := b.apply(doc("four")); err == nil || !strings.Contains(err.Error(), "nodes run the revisions 2, 3") {
		t.Errorf("nobody knows what ran: %v", err)
	}
	if err := b.Rollback(t.Context(), 3, quick(), b.say); err != nil || b.current() != (cluster.Current{Revision: 3}) {
		t.Errorf("rollback: %v, current %+v", err, b.current())
	}
	b.until("b", 3)
}

// TestKnownByHand has the key known damaged: that is told, a node can be revoked all the same, and the next rollout writes the key anew.
func TestKnownByHand(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a", "b")
	for _, text := range []string{"nonsense", `{"a":"yesterday"}`} {
		b.byHand("known", text)
		b.says("the key known is no record of culvert's")
	}
	if err := access.Forget(t.Context(), b.etcd, b.keys, "c"); err != nil {
		t.Errorf("revoking: %v", err)
	}
	if err := b.apply(doc("one")); err != nil || !strings.Contains(b.out.String(), "the key known is damaged") {
		t.Errorf("apply: %v\n%s", err, b.out)
	}
	b.lose("b")
	s, err := b.Status(t.Context())
	if err != nil || !slices.Equal(s.Away, []string{"b"}) || strings.Contains(strings.Join(s.Lines(), "\n"), "by hand") {
		t.Errorf("after a rollout: %+v, error %v", s, err)
	}
}

// TestMaintainByHand has keys of maintenance that are none: they are named with the way out, which takes them away, also where there is no such node.
func TestMaintainByHand(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("n1", "n2")
	for _, key := range []string{"n1", "gone"} {
		for _, text := range []string{"junk", "{}"} {
			b.byHand("maintain/"+key, text)
			b.says("the key maintain/" + key + " is no record of culvert's")
			b.says("'culvert fleet resume " + key + "' takes it away")
			b.out.Reset()
			if err := b.ResumeNode(t.Context(), key, b.say); err != nil || !strings.Contains(b.out.String(), "it was no maintenance") {
				t.Errorf("resume after %s: %v, said %s", text, err, b.out)
			}
		}
	}
	b.with("n2", func(n *fakeNode) { n.maintained = cluster.MaintainSafe })
	if err := b.Maintain(t.Context(), "n2", "", false, b.say); err != nil { // one of culvert's is not damaged
		t.Error(err)
	}
	s, err := b.Status(t.Context())
	if text := strings.Join(s.Lines(), "\n"); err != nil || strings.Contains(text, "by hand") || !strings.Contains(text, "n2 is in maintenance") {
		t.Errorf("error %v, status:\n%s", err, text)
	}
}

// TestLockByHand has a lock that does not end by itself, and one without a holder. Both are named with the way out, and no rollout takes them for
// somebody's.
func TestLockByHand(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a")
	for _, text := range []string{`{"by":"alice","at":"2026-01-02T03:04:05Z","does":"apply"}`, "{}", "nonsense"} {
		b.byHand("lock", text)
		const out = "'etcdctl del /culvert/test/lock'"
		b.says(out)
		for what, err := range map[string]error{
			"apply": b.apply(doc("one")), "resume": b.Resume(t.Context(), b.say), "rollback": b.Rollback(t.Context(), Before, quick(), b.say),
		} {
			if err == nil || !strings.Contains(err.Error(), out) || strings.Contains(err.Error(), "s later by itself") {
				t.Errorf("%s with %s: %v", what, text, err)
			}
		}
	}
	if _, err := b.etcd.Delete(t.Context(), b.keys.Lock()); err != nil {
		t.Fatal(err)
	}
	l, err := b.lock(t.Context(), "apply") // one of culvert's is not damaged
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.Status(t.Context())
	if err != nil || len(s.Differs) > 0 {
		t.Errorf("with a lock: %v, error %v", s.Differs, err)
	}
	l.Close()
	if err := b.apply(doc("one")); err != nil {
		t.Error(err)
	}
}
