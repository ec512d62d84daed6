// SPDX-License-Identifier: Apache-2.0

package lastgood

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func set(revision int64) *Set {
	return &Set{Cluster: "edge", Node: "n1", Revision: revision, Documents: []Document{
		{"all", fmt.Appendf(nil, "log_level = \"warn\" # %d\n", revision)}, {"node/n1", []byte("x = 1\n")},
	}}
}

func saved(t *testing.T, revisions ...int64) (Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state", "cluster")
	s := In(dir)
	for _, r := range revisions {
		if err := s.Save(set(r)); err != nil {
			t.Fatal(err)
		}
	}
	return s, dir
}

// TestLoad reads what was saved last, with those before behind it, and nothing where nothing was saved.
func TestLoad(t *testing.T) {
	empty, _ := saved(t)
	if got, problem := empty.Load("edge", "n1"); got != nil || problem != nil {
		t.Errorf("an empty store has %v, problem %v", got, problem)
	}
	s, dir := saved(t, 1, 2, 3, 3, 4)
	got, problem := s.Load("edge", "n1")
	if problem != nil || got.Revision != 4 || got.Digest() != set(4).Digest() || got.Digest() == set(3).Digest() {
		t.Errorf("loaded %+v, problem %v", got, problem)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != Kept+1 {
		t.Errorf("the store has %v, error %v", files, err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, error %v", f.Name(), info.Mode(), err)
		}
	}
	remote := got.Remotes("/x")
	if len(remote) != 2 || remote[1].Name != "etcd:node/n1" || remote[1].Dir != "/x" {
		t.Errorf("documents are %+v", remote)
	}
}

// TestCorrupt refuses a file in which a byte was changed, whichever, and takes the one before.
func TestCorrupt(t *testing.T) {
	s, dir := saved(t, 6, 7, 8)
	path := filepath.Join(dir, "last-good")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		broken := append([]byte{}, whole...)
		broken[n] ^= 1
		if err := os.WriteFile(path, broken, 0o600); err != nil {
			t.Fatal(err)
		}
		got, problem := s.Load("edge", "n1")
		if problem == nil || got == nil || got.Revision != 7 || !strings.Contains(problem.Error(), "last-good is corrupt") {
			t.Fatalf("byte %d: loaded %+v, problem %v", n, got, problem)
		}
	}
	for _, cut := range []int{0, 1, 64, 65, len(whole) - 1} {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if got, problem := s.Load("edge", "n1"); problem == nil || got == nil || got.Revision != 7 {
			t.Errorf("cut at %d: loaded %+v, problem %v", cut, got, problem)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "last-good.1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, problem := s.Load("edge", "n1"); problem == nil || got == nil || got.Revision != 6 {
		t.Errorf("two corrupt: loaded %+v, problem %v", got, problem)
	}
	// A save after that does not put the corrupt one in the place of a good one.
	if err := s.Save(set(9)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got, problem := s.Load("edge", "n1"); problem == nil || got == nil || got.Revision != 6 {
		t.Errorf("after a save: loaded %+v, problem %v", got, problem)
	}
	if err := os.WriteFile(filepath.Join(dir, "last-good.2"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, problem := s.Load("edge", "n1"); !errors.Is(problem, ErrLost) || got != nil || strings.Contains(problem.Error(), "\n") {
		t.Errorf("all corrupt: loaded %+v, problem %v", got, problem)
	}
}

// TestOthers does not start a node with the documents of another one.
func TestOthers(t *testing.T) {
	s, _ := saved(t, 1)
	for _, who := range [][2]string{{"other", "n1"}, {"edge", "n2"}} {
		if got, problem := s.Load(who[0], who[1]); got != nil || problem == nil || errors.Is(problem, ErrLost) {
			t.Errorf("%v: loaded %+v, problem %v", who, got, problem)
		}
	}
}
