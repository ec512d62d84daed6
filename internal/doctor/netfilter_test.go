// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"culvert/internal/host/netfilter"
)

func TestCheckNetfilter(t *testing.T) {
	forward := netfilter.Finding{Backend: netfilter.NFT, Family: "inet", Table: "filter", Chain: "forward",
		Hook: "forward", Policy: "drop", Rules: 3}
	legacy := netfilter.Finding{Backend: netfilter.IPTables, Family: "ip", Table: "nat", Chain: "POSTROUTING",
		Hook: "postrouting", Policy: "accept", Rules: 1}
	for _, tt := range []struct {
		name   string
		chains []netfilter.Finding
		err    error
		bypass bool
		want   []want
	}{
		{"none", nil, nil, false, []want{{OK, "no rules", ""}}},
		{"two", []netfilter.Finding{forward, legacy}, nil, false, []want{
			{Fail, "nft inet filter forward (3 rules, policy drop): ", "nft list chain inet filter forward"},
			{Fail, "the IP router does not start", "iptables-legacy -t nat -S POSTROUTING"},
		}},
		{"one that is bypassed", []netfilter.Finding{forward}, nil, true, []want{
			{Warn, "goes past it, as configured", "nft list chain inet filter forward"},
		}},
		{"not allowed", nil, fmt.Errorf("list the rules: %w", unix.EPERM), false,
			[]want{{Warn, "cannot be seen: list the rules: operation not permitted", "sudo culvert doctor"}}},
		{"other error", nil, errors.New("no way"), false, []want{{Warn, "cannot be seen: no way", ""}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := checkNetfilter(tt.chains, tt.err, tt.bypass, false, false)
			if len(got) != len(tt.want) {
				t.Fatalf("got %+v, want %d findings", got, len(tt.want))
			}
			for i, w := range tt.want {
				w.check(t, &got[i])
			}
		})
	}
}

// TestNetfilter has real rules; only an IP router cares about them.
func TestNetfilter(t *testing.T) {
	inNamespace(t)
	run := func(route bool) (found []Finding) {
		t.Helper()
		r, err := Run(Options{Interfaces: []string{"lo"}, Route: route})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Findings {
			if f.Check == "netfilter" {
				found = append(found, f)
			}
		}
		return found
	}
	one := func(w want) {
		t.Helper()
		found := run(true)
		if len(found) != 1 {
			t.Fatalf("got %+v, want one finding", found)
		}
		w.check(t, &found[0])
		if found := run(false); found != nil {
			t.Errorf("without an IP router: %+v", found)
		}
	}
	one(want{OK, "no rules", ""})
	sh(t, "nft 'table ip guard { chain transit { type filter hook forward priority 0; counter; }; }'")
	const command = "nft list chain ip guard transit"
	one(want{Fail, "nft ip guard transit (1 rule)", command})
	sh(t, command)
	sh(t, "nft delete table ip guard")
	one(want{OK, "no rules", ""})
}
