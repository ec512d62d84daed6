// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"culvert/internal/cluster/sets"
)

// TestSets applies a document with a set of a file, changes the file, and goes back.
func TestSets(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a:edge", "b")
	dir := t.TempDir()
	fill := func(skip int) {
		t.Helper()
		var text strings.Builder
		for n := range 3000 {
			if n != skip {
				fmt.Fprintf(&text, "10.0.%d.%d # bad\n", n/250, n%250)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "bad.txt"), []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change := doc("one")
	change.File = filepath.Join(dir, "all.toml")
	change.Text += "[[filter.set]]\nname = \"bad\"\nfile = 'bad.txt' # of the night\n"
	fill(-1)
	if err := b.apply(change); err != nil || !strings.Contains(b.out.String(), "set bad: 3,000 entries") {
		t.Fatalf("%v\n%s", err, b.out)
	}
	if err := b.apply(change); err != nil || !strings.Contains(b.out.String(), "nothing differs") {
		t.Errorf("the same file: %v\n%s", err, b.out)
	}
	fill(7)
	lines, err := b.DiffChanges(t.Context(), []Change{change})
	if err != nil || len(lines) == 0 || strings.Contains(strings.Join(lines, "\n"), "+name") {
		t.Errorf("diff %q, error %v", lines, err)
	}
	if err := b.apply(change); err != nil {
		t.Fatalf("%v\n%s", err, b.out)
	}
	// A document of another scope leaves the set as it is.
	other := doc("two")
	other.Scope.Kind, other.Scope.Name = "role", "edge"
	if err := b.apply(other); err != nil {
		t.Fatalf("%v\n%s", err, b.out)
	}
	for revision, want := range map[int64]int{1: 3000, 2: 2999, 3: 2999} {
		r, err := b.Revision(t.Context(), revision)
		if err != nil {
			t.Fatal(err)
		}
		docs, err := b.Documents(t.Context(), revision)
		hash := r.Sets["all:bad"]
		if err != nil || !strings.Contains(docs["all"], "file = \""+hash+"\" # of the night") {
			t.Errorf("revision %d: %v\n%s", revision, err, docs["all"])
		}
		into := filepath.Join(t.TempDir(), "sets")
		if err := sets.For("test", "b", nil, into)(t.Context(), b.etcd, r); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(into, hash))
		if err != nil || len(sets.Lines(text)) != want {
			t.Errorf("revision %d: %d entries, error %v", revision, len(sets.Lines(text)), err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "bad.txt")); err != nil {
		t.Fatal(err)
	}
	if err := b.apply(change); err == nil || !strings.Contains(b.out.String()+err.Error(), "bad.txt") {
		t.Errorf("without the file: %v\n%s", err, b.out)
	}
}

// TestRefusedByNode wants a configuration that checks for some nodes and not for others to be refused before it is written.
func TestRefusedByNode(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a", "b")
	b.with("b", func(n *fakeNode) { n.dislikes = "one" })
	err := b.apply(doc("one"))
	var refused *RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "wrong for b, and right for 1 others") || !strings.Contains(b.out.String(), "b: etcd:all:1:1: no such interface") {
		t.Errorf("error %v\n%s", err, b.out)
	}
	if r, err := b.Revisions(t.Context()); err != nil || len(r) > 0 {
		t.Errorf("%d revisions, error %v", len(r), err)
	}
	// One that runs nothing yet cannot check, and its first documents are not kept from it.
	b.with("b", func(n *fakeNode) { n.Health = "bad" })
	if err := b.apply(doc("one")); err != nil || !strings.Contains(b.out.String(), "not checked by b, which run nothing yet") {
		t.Errorf("error %v\n%s", err, b.out)
	}
	a, err := b.Where(t.Context(), []string{"192.0.2.1"}, everywhere)
	if err != nil || strings.Join(a.Lines(), "|") != "a, b:|  nothing of 192.0.2.1" {
		t.Errorf("%+v, error %v", a, err)
	}
}
