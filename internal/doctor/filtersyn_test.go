// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"culvert/internal/host/hostaddr"
)

func TestCheckSyn(t *testing.T) {
	type result struct {
		check  string
		status Status
		// command is a part of the command, "" for no command.
		command string
	}
	here := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:80")}
	var (
		address  = result{"syn-address", OK, ""}
		cookies  = result{"syn-cookies", OK, ""}
		stamps   = result{"syn-timestamps", OK, ""}
		synproxy = result{"synproxy", OK, ""}
	)
	for name, c := range map[string]struct {
		facts     synFacts
		local     []netip.AddrPort
		forwarded bool
		ipRouter  bool
		want      []result
	}{
		"nothing protected": {synFacts{cookies: "0", loose: "0"}, nil, false, false, nil},
		"no problem, local": {synFacts{cookies: "2", timestamps: "2"}, here, false, false, []result{address, cookies, stamps}},
		"defaults of Linux": {synFacts{cookies: "1", timestamps: "1", loose: "1"}, here, false, false,
			[]result{address, {"syn-cookies", Warn, "syncookies=2"}, stamps}},
		"no cookies": {synFacts{cookies: "0", timestamps: "2"}, here, false, false,
			[]result{address, {"syn-cookies", Fail, "syncookies=2"}, stamps}},
		"kernel without cookies": {synFacts{}, here, false, false, []result{address, {"syn-cookies", Fail, "syncookies=2"}, stamps}},
		"strict connection tracking": {synFacts{cookies: "2", timestamps: "2", loose: "0"}, here, false, false,
			[]result{address, cookies, stamps, {"syn-conntrack", Warn, "loose=1"}}},
		"address of another host": {synFacts{cookies: "2", timestamps: "2", notLocal: here}, here, false, false,
			[]result{{"syn-address", Warn, "ip "}, cookies, stamps}},
		"addresses not readable": {synFacts{cookies: "2", timestamps: "2", addrErr: errors.New("not permitted")}, here, false, false,
			[]result{{"syn-address", Warn, "ip "}, cookies, stamps}},
		"no problem, forwarded": {synFacts{cookies: "1", timestamps: "1", loose: "0", rule: true}, nil, true, false,
			[]result{synproxy, {"syn-conntrack", OK, ""}}},
		"no rule, no tracking": {synFacts{timestamps: "0"}, nil, true, false,
			[]result{{"synproxy", Fail, "synproxy mss"}, {"syn-timestamps", Warn, "timestamps=1"}, {"syn-conntrack", Fail, "loose=0"}}},
		"rules not readable": {synFacts{timestamps: "1", loose: "0", ruleErr: errors.New("not permitted")}, nil, true, false,
			[]result{{"synproxy", Warn, "sudo"}, {"syn-conntrack", OK, ""}}},
		"no rule, beside an IP router": {synFacts{timestamps: "1", loose: "0"}, nil, true, true,
			[]result{{"synproxy", Fail, "synproxy mss"}, {"syn-conntrack", OK, ""}}},
		// Local and forwarded services have one finding for a setting that both depend on.
		"local and forwarded, set for local": {synFacts{cookies: "2", timestamps: "2", loose: "1", rule: true}, here, true, false,
			[]result{address, cookies, synproxy, stamps, {"syn-conntrack", Fail, "loose=0"}}},
		"local and forwarded, set for forwarded": {synFacts{cookies: "2", timestamps: "0", loose: "0", rule: true}, here, true, false,
			[]result{address, cookies, synproxy, {"syn-timestamps", Warn, "timestamps=1"}, {"syn-conntrack", Warn, "protect 192.0.2.1:80 --forwarded"}}},
	} {
		t.Run(name, func(t *testing.T) {
			found := checkSyn(c.facts, c.local, c.forwarded, c.ipRouter)
			if len(found) != len(c.want) {
				t.Fatalf("got %+v, want %d findings", found, len(c.want))
			}
			for n, f := range found {
				w := c.want[n]
				if f.Check != w.check || f.Status != w.status || f.Finding == "" || (f.Command == "") != (w.command == "") ||
					!strings.Contains(f.Command, w.command) {
					t.Errorf("got %+v, want %+v", f, w)
				}
				if f.Check == "synproxy" && f.Status == Fail && c.ipRouter != strings.Contains(f.Finding, "chain at input") {
					t.Errorf("IP router: %t, got %q", c.ipRouter, f.Finding)
				}
			}
		})
	}
}

// TestServicesNotHere has addresses that this host has by an interface or by a local route, and others.
func TestServicesNotHere(t *testing.T) {
	inNamespace(t)
	sh(t, `ip link set lo up; ip address add 192.0.2.1/32 dev lo; ip address add 2001:db8::1/128 dev lo
		ip route add local 198.51.100.0/24 dev lo`)
	var services, want []netip.AddrPort
	for _, s := range []string{"192.0.2.1:80", "[2001:db8::1]:80", "198.51.100.9:80", "[::ffff:192.0.2.1]:81"} {
		services = append(services, netip.MustParseAddrPort(s))
	}
	for _, s := range []string{"203.0.113.9:8080", "192.0.2.2:80", "[2001:db8::2]:80"} {
		want = append(want, netip.MustParseAddrPort(s))
	}
	got, err := hostaddr.Elsewhere(slices.Concat(services, want))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}
