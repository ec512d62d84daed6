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
		router ipRouter
		want   []want
	}{
		{"no chain", nil, nil, ipRouter{}, []want{{OK, "no rules apply", ""}}},
		{"two chains", []netfilter.Finding{forward, legacy}, nil, ipRouter{}, []want{
			{Fail, "nft inet filter forward (3 rules, policy drop): ", "nft list chain inet filter forward"},
			{Fail, "the IP router does not start", "iptables-legacy -t nat -S POSTROUTING"},
		}},
		{"one chain, bypassed", []netfilter.Finding{forward}, nil, ipRouter{bypass: true}, []want{
			{Warn, "goes past it, as configured", "nft list chain inet filter forward"},
		}},
		{"one chain, left to the kernel", []netfilter.Finding{forward}, nil, ipRouter{runs: true, kernel: true}, []want{
			{Warn, "leaves all packets to the kernel, because of it", "nft list chain inet filter forward"},
		}},
		{"one chain, the process ended", []netfilter.Finding{forward}, nil, ipRouter{runs: true, kernel: true, ended: true}, []want{
			{Fail, "starts again only once these rules are removed, or with route.bypass_netfilter = true", "nft list chain inet filter forward"},
		}},
		{"one chain, the process ended, bypassed", []netfilter.Finding{forward}, nil, ipRouter{runs: true, ended: true, bypass: true}, []want{
			{Warn, "goes past it, as configured", "nft list chain inet filter forward"},
		}},
		{"not permitted", nil, fmt.Errorf("list the rules: %w", unix.EPERM), ipRouter{},
			[]want{{Warn, "the rules cannot be read: list the rules: operation not permitted", "sudo culvert doctor"}}},
		{"other error", nil, errors.New("no way"), ipRouter{}, []want{{Warn, "the rules cannot be read: no way", ""}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := checkNetfilter(tt.chains, tt.err, tt.router)
			if len(got) != len(tt.want) {
				t.Fatalf("got %+v, want %d findings", got, len(tt.want))
			}
			for i, w := range tt.want {
				w.check(t, &got[i])
			}
		})
	}
}

// TestNetfilter adds and deletes rules of nftables. They are examined for an IP router only.
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
	wantOne := func(w want) {
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
	wantOne(want{OK, "no rules apply", ""})
	sh(t, "nft 'table ip guard { chain transit { type filter hook forward priority 0; counter; }; }'")
	const command = "nft list chain ip guard transit"
	wantOne(want{Fail, "nft ip guard transit (1 rule)", command})
	sh(t, command)
	sh(t, "nft delete table ip guard")
	wantOne(want{OK, "no rules apply", ""})
}
