// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLegacy adds rules to each chain of each table of both families.
func TestLegacy(t *testing.T) {
	tables := map[string][]string{
		"filter":   {"INPUT", "FORWARD", "OUTPUT"},
		"nat":      {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
		"mangle":   {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"},
		"raw":      {"PREROUTING", "OUTPUT"},
		"security": {"INPUT", "FORWARD", "OUTPUT"},
	}
	for _, l := range []legacy{ip4, ip6} {
		for table, chains := range tables {
			for _, chain := range chains {
				t.Run(l.backend+" "+table+" "+chain, func(t *testing.T) {
					inNamespace(t)
					tool := l.backend + "-legacy -t " + table
					f := Finding{Backend: l.backend, Family: l.family, Table: table, Chain: chain,
						Hook: strings.ToLower(chain), Policy: "accept"}
					finding := func(policy string, rules int) []Finding {
						if chain == "INPUT" || chain == "OUTPUT" {
							return nil
						}
						f.Policy, f.Rules = policy, rules
						return []Finding{f}
					}
					sh(t, tool+" -N own\n"+tool+" -A own -j RETURN") // no rule leads to this chain
					expect(t, find(t))
					sh(t, tool+" -A "+chain+" -p tcp -m tcp --dport 80 -j ACCEPT")
					expect(t, find(t), finding("accept", 1)...)
					sh(t, tool+" -A "+chain+" -j own\n"+tool+" -A "+chain+" -m comment --comment why -m mark --mark 1")
					expect(t, find(t), finding("accept", 3)...)
					if want := finding("accept", 3); want != nil {
						if out := sh(t, want[0].Show()); strings.Count(out, "-A "+chain) != 3 {
							t.Errorf("%q shows %s", want[0].Show(), out)
						}
					}
					sh(t, tool+" -F\n"+tool+" -X")
					expect(t, find(t))
					if table != "nat" { // nat chains accept no other policy
						sh(t, tool+" -P "+chain+" DROP")
						expect(t, find(t), finding("drop", 0)...)
						sh(t, tool+" -P "+chain+" ACCEPT")
					}
				})
			}
		}
	}
}

// TestManyLegacy reads a table of some hundred kilobytes.
func TestManyLegacy(t *testing.T) {
	inNamespace(t)
	const rules = 2000
	var b strings.Builder
	b.WriteString("*filter\n:FORWARD DROP\n")
	for i := range rules {
		fmt.Fprintf(&b, "-A FORWARD -s 10.0.%d.%d/32 -j DROP\n", i/256, i%256)
	}
	b.WriteString("COMMIT\n")
	sh(t, "iptables-legacy-restore "+file(t, b.String()))
	expect(t, find(t), Finding{Backend: IPTables, Family: "ip", Table: "filter", Chain: "FORWARD", Hook: "forward",
		Policy: "drop", Rules: rules})
}

// TestChangingLegacy reads a table whose size changes over and over.
func TestChangingLegacy(t *testing.T) {
	inNamespace(t)
	forward := func(rules int) Finding {
		return Finding{Backend: IPTables, Family: "ip", Table: "filter", Chain: "FORWARD", Hook: "forward",
			Policy: "accept", Rules: rules}
	}
	sh(t, "iptables-legacy -A FORWARD -j ACCEPT")
	stop := start(t, `while :; do
		iptables-legacy -A FORWARD -j ACCEPT
		iptables-legacy -D FORWARD 2
	done`)
	for range 200 {
		found, err := Find()
		if err != nil {
			if !strings.Contains(err.Error(), "changed during") {
				t.Fatal(err)
			}
			continue
		}
		if len(found) == 1 && found[0].Rules == 2 {
			expect(t, found, forward(2))
			continue
		}
		expect(t, found, forward(1))
	}
	stop()
}

// TestSettled checks the results for a table that changes, vanishes or cannot be read.
func TestSettled(t *testing.T) {
	inNamespace(t)
	sh(t, "iptables-legacy -A FORWARD -j ACCEPT")
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, tt := range []struct {
		name   string
		times  int // how often reading fails before it succeeds
		fail   error
		found  int
		errors bool
	}{
		{"at rest", 0, nil, 1, false},
		{"changed twice", 2, unix.EAGAIN, 1, false},
		{"never at rest", 1000, unix.EAGAIN, 0, true},
		{"gone", 1, unix.ENOENT, 0, false},
		{"not to be read", 1, unix.EPERM, 0, true},
	} {
		reads := 0
		found, err := ip4.settled("filter", func() (tableInfo, []byte, error) {
			if reads++; reads <= tt.times {
				return tableInfo{}, nil, tt.fail
			}
			return ip4.read(fd, "filter")
		})
		if len(found) != tt.found || (err != nil) != tt.errors {
			t.Errorf("%s: %+v, %v", tt.name, found, err)
		}
	}
}

// TestMalformed reads tables that do not follow the layout. They must cause an error, and neither a crash nor an endless loop.
func TestMalformed(t *testing.T) {
	entries := func() []byte { // two entries with the standard target, the second is the policy
		b := make([]byte, 2*152)
		for at := 0; at < len(b); at += 152 {
			b[at+88], b[at+90] = 112, 152
			b[at+112+32] = 0xfe
			copy(b[at+112+33:], "\xff\xff\xff")
		}
		return b
	}
	info := tableInfo{validHooks: 1 << unix.NF_INET_FORWARD}
	info.underflow[unix.NF_INET_FORWARD] = 152
	found, err := ip4.chains("filter", info, entries())
	if err != nil {
		t.Fatal(err)
	}
	expect(t, found, Finding{Backend: IPTables, Family: "ip", Table: "filter", Chain: "FORWARD", Hook: "forward",
		Policy: "accept", Rules: 1})
	for name, spoil := range map[string]func(b []byte) []byte{
		"empty":                func([]byte) []byte { return nil },
		"short":                func(b []byte) []byte { return b[:200] },
		"entry without length": func(b []byte) []byte { b[90] = 0; return b },
		"beyond the policy":    func(b []byte) []byte { b[90] = 160; return b },
		"beyond the end":       func(b []byte) []byte { b[91] = 255; return b },
		"policy beyond itself": func(b []byte) []byte { b[152+88] = 153; return b },
		"policy without target": func(b []byte) []byte {
			b[152+88] = 150
			return b
		},
	} {
		if found, err := ip4.chains("filter", info, spoil(entries())); err == nil {
			t.Errorf("%s: no error, found %+v", name, found)
		}
	}
}
