// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
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
	made, err := plan.seed(log, nil)
	if err == nil {
		err = keepSeed(made, nil, log)
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
	made, err := plan.seed(log, nil)
	if err != nil || made == "" {
		t.Fatal(made, err)
	}
	if _, err := seedOf(t, ""); err != nil {
		t.Fatal(err)
	}
	if err := keepSeed(made, nil, log); err == nil || !strings.Contains(err.Error(), "another process has just made "+SeedPath()) {
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

// TestSeedLost removes the file with this machine's seed while a load balancer runs. A reload keeps the seed in use and writes it again.
// It makes another one if the seed in use is that of the configuration.
func TestSeedLost(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	var out bytes.Buffer
	start := stage.Start{Log: slog.New(slog.NewTextHandler(&out, nil))}
	read := func(text string) *Plan {
		t.Helper()
		plan, err := compile(t, text)
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	reload := func(text string, former stage.Prepared) *prepared {
		t.Helper()
		out.Reset()
		next, err := read(text).Succeed(t.Context(), start, former)
		if err != nil {
			t.Fatal(err)
		}
		p := next.(*prepared)
		if err := keepSeed(p.madeSeed, p.former, start.Log); err != nil {
			t.Fatal(err)
		}
		return p
	}
	first, err := read(lbHead).Prepare(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	if err := keepSeed(first.(*prepared).madeSeed, nil, start.Log); err != nil {
		t.Fatal(err)
	}
	kept, _, err := readSeed()
	if err != nil {
		t.Fatal(err)
	}
	last := first.(*prepared)
	for range 2 {
		if err := os.Remove(SeedPath()); err != nil {
			t.Fatal(err)
		}
		want := []string{"lb.seed: " + SeedPath() + " is gone: the seed in use stays and is written again"}
		if lines := read(lbHead).Changes(last.Plan, nil); !slices.Equal(lines, want) {
			t.Errorf("changes %q, want %q", lines, want)
		}
		last = reload(lbHead, last)
		if now, _, err := readSeed(); err != nil || now != kept || last.options.Seed != seedWords(kept) {
			t.Errorf("after the reload the file has %t, %v", now == kept, err)
		}
		if !strings.Contains(out.String(), "was gone: the seed in use stays, and was written again") || strings.Contains(out.String(), kept) {
			t.Errorf("log %q", out.String())
		}
	}
	last = reload(lbHead, last)
	if out.Len() > 0 || len(read(lbHead).Changes(last.Plan, nil)) > 0 {
		t.Errorf("with the file: log %q", out.String())
	}

	last = reload(lbHead+"seed = \"text\"\n", last)
	if err := os.Remove(SeedPath()); err != nil {
		t.Fatal(err)
	}
	if lines := read(lbHead).Changes(last.Plan, nil); len(lines) != 1 || !strings.HasPrefix(lines[0], "lb.seed changed") {
		t.Errorf("changes %q", lines)
	}
	reload(lbHead, last)
	if now, _, err := readSeed(); err != nil || now == kept || now == "" || now == "text" || !strings.Contains(out.String(), "made a seed") {
		t.Errorf("log %q, %v", out.String(), err)
	}
}
