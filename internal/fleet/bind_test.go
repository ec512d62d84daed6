// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"culvert/internal/cluster"
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

// TestDamagedSets has somebody damage a chunk of a set in etcd, lose another one, and damage the manifest. The next apply of the same file mends
// that, and so does one of another file.
func TestDamagedSets(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a")
	dir := t.TempDir()
	fill := func(n int) {
		t.Helper()
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "10.%d.%d.%d\n", i>>16, i>>8&255, i&255)
		}
		if err := os.WriteFile(filepath.Join(dir, "bad.txt"), []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change := doc("one")
	change.File = filepath.Join(dir, "all.toml")
	change.Text += "[[filter.set]]\nname = \"bad\"\nfile = 'bad.txt'\n"
	// whole applies the document, and reads the set as a node does that has nothing of it.
	whole := func(what string, want int) (hash string, m cluster.SetManifest) {
		t.Helper()
		if err := b.apply(change); err != nil {
			t.Fatalf("%s: %v\n%s", what, err, b.out)
		}
		r, err := b.Revision(t.Context(), b.current().Revision)
		if err != nil {
			t.Fatal(err)
		}
		into := filepath.Join(t.TempDir(), "sets")
		if err := sets.For("test", "a", nil, into)(t.Context(), b.etcd, r); err != nil {
			t.Fatalf("%s: %v\n%s", what, err, b.out)
		}
		hash = r.Sets["all:bad"]
		text, err := os.ReadFile(filepath.Join(into, hash))
		if err != nil || len(sets.Lines(text)) != want {
			t.Errorf("%s: %d entries, error %v", what, len(sets.Lines(text)), err)
		}
		if m, _, err = sets.Manifest(t.Context(), b.etcd, b.keys, hash); err != nil {
			t.Fatal(err)
		}
		return hash, m
	}
	damage := func(key, value string) {
		t.Helper()
		var err error
		if value == "" {
			_, err = b.etcd.Delete(t.Context(), key)
		} else {
			_, err = b.etcd.Put(t.Context(), key, value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const n = 30_000
	fill(n)
	hash, m := whole("at first", n)
	for what, value := range map[string]string{"damaged": "x", "missing": ""} {
		damage(b.keys.Chunk(m.Chunks[0]), value)
		if same, _ := whole("a chunk is "+what, n); same != hash {
			t.Errorf("a chunk is %s: the set has another name", what)
		}
		damage(b.keys.Set(hash), value)
		if same, _ := whole("the manifest is "+what, n); same != hash {
			t.Errorf("the manifest is %s: the set has another name", what)
		}
	}
	damage(b.keys.Chunk(m.Chunks[0]), "x")
	fill(n + 1)
	whole("another file", n+1)
	fill(n + 2)
	_, m = whole("differences", n+2)
	if len(m.Added) == 0 {
		t.Fatal("a line more is no difference")
	}
	damage(b.keys.Chunk(m.Added[0]), "x")
	whole("differences that are damaged", n+2)
}

// TestRefusedByNode wants a configuration that checks for some nodes and not for others to be refused before it is written.
func TestRefusedByNode(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a", "b")
	b.with("b", func(n *fakeNode) { n.dislikes = "one" })
	err := b.apply(doc("one"))
	var refused *RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "wrong for b, and right for 1 other") || !strings.Contains(b.out.String(), "b: etcd:all:1:1: no such interface") {
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
