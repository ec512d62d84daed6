// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLBSeed asks for the machine's seed while load balancers run with that one, with another one, and not at all.
func TestLBSeed(t *testing.T) {
	b := newLBBed(t)
	t.Setenv("STATE_DIRECTORY", b.dir)
	path := filepath.Join(b.dir, "lb-seed")
	noSeed := func(when string) {
		t.Helper()
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Fatalf("%s: %s: %v", when, path, err)
		}
	}
	id := func() string {
		var shown struct {
			SeedID string `json:"seed_id"`
		}
		_, out, _ := culvert(t, "lb", "show", "-j")
		if err := json.Unmarshal([]byte(out), &shown); err != nil || shown.SeedID == "" {
			t.Fatalf("%v: %s", err, out)
		}
		return shown.SeedID
	}
	withSeed := strings.Replace(lbConfig, "[lb]\n", "[lb]\nseed = 'lab'\n", 1)

	b.expect(1, "interface nope0", "attach", "-c", b.file(lbConfig), "nope0")
	noSeed("a refused start")

	b.expect(0, "attached", "attach", "-c", b.file(withSeed), "lb0")
	other := id()
	b.lb(1, "culvert uses a seed of its own (ID "+other+"), and there is no "+path+": see seed in [lb] of its configuration", "seed")
	noSeed("a load balancer with a seed of its own")
	b.expect(0, "", "detach", "--all")

	b.expect(0, "attached", "attach", "-c", b.file(lbConfig), "lb0")
	own := id()
	kept, err := os.ReadFile(path)
	must(err)
	if status, out, errs := culvert(t, "lb", "seed"); status != 0 || out != string(kept) || errs != "" {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
	b.expect(0, "", "detach", "--all")
	b.lb(0, string(kept), "seed")

	b.expect(0, "attached", "attach", "-c", b.file(withSeed), "lb0")
	if again := id(); again != other || again == own {
		t.Errorf("seeds %s, %s and then %s", other, own, again)
	}
	status, out, errs := culvert(t, "lb", "seed")
	want := "culvert uses another seed (ID " + other + ") than that of " + path + " (ID " + own + "): see seed in [lb] of its configuration"
	if status != 1 || out != "" || !strings.Contains(errs, want) {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
}
