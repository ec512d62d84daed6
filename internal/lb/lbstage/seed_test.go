// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"culvert/internal/stage"
)

// planned is the key of the rings that a file with these lines in [lb] leads to, once it is in force.
func planned(t *testing.T, lines string) ([6]uint32, error) {
	t.Helper()
	w, err := compile(t, lbHead+lines)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	made, err := w.seed(log)
	if err == nil {
		err = keepSeed(made, log)
	}
	return w.options.Seed, err
}

// TestSeed has machines without a seed in their configuration make one: each another, and for good.
func TestSeed(t *testing.T) {
	var of [2][6]uint32
	for n := range of {
		dir := filepath.Join(t.TempDir(), "culvert")
		t.Setenv("STATE_DIRECTORY", dir)
		for again := range 2 {
			words, err := planned(t, "")
			if err != nil {
				t.Fatal(err)
			}
			if again > 0 && words != of[n] {
				t.Error("another seed at the next start")
			}
			of[n] = words
		}
		path := filepath.Join(dir, "lb-seed")
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		var out, errs bytes.Buffer
		if err := ShowSeed(&out, &errs); err != nil || errs.Len() > 0 {
			t.Errorf("%v, %q", err, errs.String())
		}
		if words, err := planned(t, fmt.Sprintf("seed = %q\n", strings.TrimSpace(out.String()))); err != nil || words != of[n] {
			t.Errorf("the seed as 'lb seed' prints it, in a configuration: %x, %v, want %x", words, err, of[n])
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := planned(t, ""); err == nil || !strings.Contains(err.Error(), "chmod 0600 "+path) {
			t.Errorf("a seed that others may read: %v", err)
		}
	}
	public := seedWords("culvert")
	if of[0] == of[1] || of[0] == public || of[1] == public {
		t.Errorf("seeds %x and %x, and the one that everybody knows is %x", of[0], of[1], public)
	}
}

// TestSeedMadeOnce has several processes make one at once.
func TestSeedMadeOnce(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		seeds = map[string]int{}
	)
	for range 20 {
		wg.Go(func() {
			var out bytes.Buffer
			if err := ShowSeed(&out, io.Discard); err != nil {
				t.Error(err)
			}
			seed := out.String()
			mu.Lock()
			defer mu.Unlock()
			seeds[seed]++
		})
	}
	wg.Wait()
	if len(seeds) != 1 {
		t.Errorf("%d seeds: %v", len(seeds), seeds)
	}
	left, err := os.ReadDir(filepath.Dir(seedPath()))
	if err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestSeedMadeMeanwhile has another process make a seed between the plan and its coming into force: rings with a seed that is
// not the file's would move flows at the next start.
func TestSeedMadeMeanwhile(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	w, err := compile(t, lbHead)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	made, err := w.seed(log)
	if err != nil || made == "" {
		t.Fatal(made, err)
	}
	if _, err := planned(t, ""); err != nil {
		t.Fatal(err)
	}
	if err := keepSeed(made, log); err == nil || !strings.Contains(err.Error(), "another process has just made "+seedPath()) {
		t.Errorf("error is %v", err)
	}
	if seed, _, err := readSeed(); err != nil || seed == made {
		t.Errorf("%v, or the first one's seed is lost", err)
	}
}

// TestRefusedStartMakesNoSeed prepares a start that is then refused.
func TestRefusedStartMakesNoSeed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "culvert")
	t.Setenv("STATE_DIRECTORY", dir)
	w, err := compile(t, lbHead)
	if err != nil {
		t.Fatal(err)
	}
	p, err := w.Prepare(t.Context(), stage.Start{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil || w.options.Seed == [6]uint32{} {
		t.Fatal(w.options.Seed, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s: %v", dir, err)
	}
}

// TestCheckMakesNoSeed has a configuration looked at, which touches nothing.
func TestCheckMakesNoSeed(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("STATE_DIRECTORY", dir)
	if _, err := compile(t, lbHead); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
