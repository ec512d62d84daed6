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

// seedOf returns the key of the rings for a file with these lines in [lb]. It stores a new seed, as a start does.
func seedOf(t *testing.T, lines string) ([6]uint32, error) {
	t.Helper()
	plan, err := compile(t, lbHead+lines)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	made, err := plan.seed(log)
	if err == nil {
		err = keepSeed(made, log)
	}
	return plan.options.Seed, err
}

// TestSeed has two machines without a seed in their configuration. Each creates a seed of its own, and keeps it.
func TestSeed(t *testing.T) {
	var seeds [2][6]uint32
	for n := range seeds {
		dir := filepath.Join(t.TempDir(), "culvert")
		t.Setenv("STATE_DIRECTORY", dir)
		for again := range 2 {
			words, err := seedOf(t, "")
			if err != nil {
				t.Fatal(err)
			}
			if again > 0 && words != seeds[n] {
				t.Error("another seed at the next start")
			}
			seeds[n] = words
		}
		path := filepath.Join(dir, "lb-seed")
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		var out, errs bytes.Buffer
		if err := ShowSeed(&out, &errs); err != nil || errs.Len() > 0 {
			t.Errorf("%v, %q", err, errs.String())
		}
		if words, err := seedOf(t, fmt.Sprintf("seed = %q\n", strings.TrimSpace(out.String()))); err != nil || words != seeds[n] {
			t.Errorf("the seed that 'lb seed' prints, in a configuration: %x, %v, want %x", words, err, seeds[n])
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := seedOf(t, ""); err == nil || !strings.Contains(err.Error(), "chmod 0600 "+path) {
			t.Errorf("a seed that others may read: %v", err)
		}
	}
	public := seedWords("culvert")
	if seeds[0] == seeds[1] || seeds[0] == public || seeds[1] == public {
		t.Errorf("seeds %x and %x, and the public one is %x", seeds[0], seeds[1], public)
	}
}

// TestSeedMadeOnce has several callers create the seed at the same time. All get the same one.
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
	left, err := os.ReadDir(filepath.Dir(SeedPath()))
	if err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestSeedMadeMeanwhile has another process store a seed while a start is prepared. The start is refused, because rings with
// another seed than the stored one would move flows at the next start.
func TestSeedMadeMeanwhile(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	plan, err := compile(t, lbHead)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	made, err := plan.seed(log)
	if err != nil || made == "" {
		t.Fatal(made, err)
	}
	if _, err := seedOf(t, ""); err != nil {
		t.Fatal(err)
	}
	if err := keepSeed(made, log); err == nil || !strings.Contains(err.Error(), "another process has just made "+SeedPath()) {
		t.Errorf("error is %v", err)
	}
	if seed, _, err := readSeed(); err != nil || seed == made {
		t.Errorf("%v, or the seed of the other process was replaced", err)
	}
}

// TestRefusedStartMakesNoSeed prepares a start and does not go on with it.
func TestRefusedStartMakesNoSeed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "culvert")
	t.Setenv("STATE_DIRECTORY", dir)
	plan, err := compile(t, lbHead)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Prepare(t.Context(), stage.Start{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil || plan.options.Seed == [6]uint32{} {
		t.Fatal(plan.options.Seed, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s: %v", dir, err)
	}
}

// TestCheckMakesNoSeed compiles a configuration, which must not write files.
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
