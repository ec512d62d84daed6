// SPDX-License-Identifier: Apache-2.0

package sets

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/cluster/clusterbed"
)

func TestLines(t *testing.T) {
	got := Lines([]byte("192.0.2.7 198.51.100.0/24 timeout 10m # a note\n\n# timeout 5s\n192.0.2.7\n2001:db8::/32"))
	want := []string{"192.0.2.7", "198.51.100.0/24 timeout 10m", "2001:db8::/32"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// addresses returns n entries, sorted.
func addresses(n int) []string {
	r := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for range n {
		v := r.Uint32()
		fmt.Fprintf(&b, "%d.%d.%d.%d\n", v>>24, v>>16&255, v>>8&255, v&255)
	}
	return Lines([]byte(b.String()))
}

// bed is an etcd with a node's directory.
type bed struct {
	*testing.T
	etcd *clientv3.Client
	keys cluster.Keys
	dir  string
}

func newBed(t *testing.T) *bed {
	return &bed{t, clusterbed.New(t, clusterbed.Options{}).Client(), cluster.KeysOf("test"), filepath.Join(t.TempDir(), "sets")}
}

// store makes a set and stores it, and returns how many bytes of chunks that took.
func (b *bed) store(lines []string, former string) (*Set, int) {
	b.Helper()
	var f *Former
	if former != "" {
		var err error
		if f, err = Before(b.Context(), b.etcd, b.keys, former); err != nil {
			b.Fatal(err)
		}
	}
	s, err := Make("bad", "prefix", lines, f)
	if err != nil {
		b.Fatal(err)
	}
	_, bytes, err := Store(b.Context(), b.etcd, b.keys, s)
	if err != nil {
		b.Fatal(err)
	}
	return s, bytes
}

// has fetches a set and wants its lines.
func (b *bed) has(s *Set, lines []string) {
	b.Helper()
	if err := Fetch(b.Context(), b.etcd, b.keys, b.dir, []string{s.Hash}); err != nil {
		b.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(b.dir, s.Hash))
	if err != nil || !slices.Equal(Lines(text), lines) {
		b.Errorf("the file has %d lines of %d, error %v", len(Lines(text)), len(lines), err)
	}
}

// change returns lines with every nth one replaced by another.
func change(lines []string, n int) []string {
	out := slices.Clone(lines)
	for i := 0; i < len(out); i += n {
		out[i] += "/31"
	}
	return Lines([]byte(strings.Join(out, "\n")))
}

// TestChunks writes a set, and sets that differ in one place and in many places, and wants differences alone to be transferred.
func TestChunks(t *testing.T) {
	b := newBed(t)
	const n = 100_000
	lines := addresses(n)
	first, all := b.store(lines, "")
	if len(first.Chunks) < 10 {
		t.Fatalf("%d chunks", len(first.Chunks))
	}
	b.has(first, lines)
	near := slices.Delete(slices.Clone(lines), n/2, n/2+100)
	second, bytes := b.store(near, first.Hash)
	if bytes > all/20 {
		t.Errorf("100 lines in one place took %d bytes of %d", bytes, all)
	}
	b.has(second, near)
	far := change(near, 100)
	third, bytes := b.store(far, second.Hash)
	if bytes > all/20 {
		t.Errorf("1 %% took %d bytes of %d", bytes, all)
	}
	if len(third.Added) == 0 || len(third.Removed) == 0 {
		t.Errorf("%d chunks added, %d removed", len(third.Added), len(third.Removed))
	}
	b.has(third, far)
	other := change(far, 3)
	fourth, _ := b.store(other, third.Hash)
	if len(fourth.Added) > 0 || len(fourth.Removed) > 0 {
		t.Error("a third of the lines went as differences")
	}
	b.has(fourth, other)
	same, bytes := b.store(other, fourth.Hash)
	if bytes != 0 || same.Hash != fourth.Hash {
		t.Errorf("the same set took %d bytes", bytes)
	}
	deleted, err := Collect(t.Context(), b.etcd, b.keys, map[string]bool{third.Hash: true, fourth.Hash: true})
	if err != nil || deleted == 0 {
		t.Errorf("%d deleted, error %v", deleted, err)
	}
	b.dir = filepath.Join(t.TempDir(), "another")
	b.has(third, far)
	b.has(fourth, other)
	var gone *GoneError
	if err := Fetch(t.Context(), b.etcd, b.keys, b.dir, []string{first.Hash}); !errors.As(err, &gone) {
		t.Errorf("a set that was collected: %v", err)
	}
}

// TestCorrupt wants a chunk with another content than its name says to be refused in etcd, and read again on disk.
func TestCorrupt(t *testing.T) {
	b := newBed(t)
	lines := addresses(20_000)
	s, _ := b.store(lines, "")
	b.has(s, lines)
	chunk := filepath.Join(b.dir, chunkDir, s.Chunks[0])
	if err := errors.Join(os.WriteFile(chunk, []byte("x"), 0o600), os.Remove(filepath.Join(b.dir, s.Hash))); err != nil {
		t.Fatal(err)
	}
	b.has(s, lines)
	if _, err := b.etcd.Put(t.Context(), b.keys.Chunk(s.Chunks[0]), "x"); err != nil {
		t.Fatal(err)
	}
	b.dir = filepath.Join(t.TempDir(), "another")
	if err := Fetch(t.Context(), b.etcd, b.keys, b.dir, []string{s.Hash}); !errors.Is(err, ErrChunk) {
		t.Errorf("a chunk by hand: %v", err)
	}
	for _, name := range []string{"", "../x", "ABC"} {
		if err := Fetch(context.Background(), b.etcd, b.keys, b.dir, []string{name}); err == nil {
			t.Errorf("name %q was taken", name)
		}
	}
}

// TestTidy wants old sets to go from a node's directory, and their chunks.
func TestTidy(t *testing.T) {
	b := newBed(t)
	var all []*Set
	for n := range keptSets + 3 {
		s, _ := b.store([]string{fmt.Sprintf("192.0.2.%d", n)}, "")
		b.has(s, []string{fmt.Sprintf("192.0.2.%d", n)})
		all = append(all, s)
	}
	for n, s := range all {
		_, err := os.Stat(filepath.Join(b.dir, s.Hash))
		if there := err == nil; there != (n >= 2) {
			t.Errorf("set %d is there: %v", n, there)
		}
	}
	chunks, err := os.ReadDir(filepath.Join(b.dir, chunkDir))
	if err != nil || len(chunks) != keptSets+1 {
		t.Errorf("%d chunks, error %v", len(chunks), err)
	}
}

// TestKept has a node be asked at the same time whether it would run many revisions, each with a set of its own. The sets that it runs stay.
func TestKept(t *testing.T) {
	b := newBed(t)
	var runs []string
	record := func(n int) cluster.Revision {
		s, _ := b.store([]string{fmt.Sprintf("192.0.2.%d", n)}, "")
		return cluster.Revision{Sets: map[string]string{"all:bad": s.Hash, "role/other:bad": "0"}}
	}
	fetch := For("test", "n1", []string{"edge"}, b.dir, func() []string { return runs })
	const running, asked = keptSets + 3, keptSets + 8
	for n := range running {
		r := record(n)
		runs = append(runs, r.SetsOf("n1", []string{"edge"})...)
		if err := fetch(t.Context(), b.etcd, r); err != nil {
			t.Fatal(err)
		}
	}
	if len(runs) != running {
		t.Fatalf("%d sets of %d are for the node", len(runs), running)
	}
	var work sync.WaitGroup
	for n := range asked {
		r := record(running + n)
		work.Go(func() {
			if err := fetch(t.Context(), b.etcd, r); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	for _, hash := range runs {
		if _, err := os.Stat(filepath.Join(b.dir, hash)); err != nil {
			t.Error(err)
		}
	}
	if all, err := os.ReadDir(b.dir); err != nil || len(all) > 2*(running+keptSets+1)+1 {
		t.Errorf("%d files, error %v", len(all), err)
	}
}
