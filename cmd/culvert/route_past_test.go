// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestRouteGoesPast adds rules of netfilter while no process runs, and a filter of tc as well.
func TestRouteGoesPast(t *testing.T) {
	b := newFilterBed(t)
	sh := func(line string) {
		t.Helper()
		if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
	const filter = "tc qdisc add dev ft0 clsact && tc filter add dev ft0 ingress protocol ip u32 match u32 0 0 flowid 1:1"
	file := b.file("c.toml", "interfaces = ['ft0']\n[route]\nblocks4 = 64\nblocks6 = 1024\n")
	p := runAttached(t, file)
	sh(filter)
	p.waitFor(t, "tc ingress on ft0 (1 filter)")
	sh("tc qdisc del dev ft0 clsact")
	p.waitFor(t, "the fast path forwards again")
	p.interrupt(t)

	sh("nft add table ip f && nft 'add chain ip f fw { type filter hook forward priority 0; policy drop; }'")
	sh(filter)
	for _, want := range []string{"nft ip f fw (no rules, policy drop)", "tc ingress on ft0 (1 filter)"} {
		b.expect(0, want, "status")
		_, out, _ := culvert(t, "doctor", "-i", "ft0")
		if !strings.Contains(out, want+": the process of the IP router has ended, and starts again only once these rules are removed") {
			t.Errorf("doctor says\n%s", out)
		}
	}
	b.expect(1, "tc ingress on ft0 (1 filter)", "run", "-c", file)
}
