// SPDX-License-Identifier: Apache-2.0

package edit

import "testing"

func TestInMembers(t *testing.T) {
	for _, c := range []struct {
		request    Request
		text, want string
	}{
		{new(RuleAdd), "the rule's place: leave out --first and --before", "the rule's place: leave out first: true and before"},
		{new(RuleAdd), "use --all, or another --name: see 'culvert filter list --all'", "use all: true, or another rule: see 'culvert filter list --all'"},
		{new(BackendAdd), "there already: change it with 'culvert lb backend set'", "there already: change it with /v1/lb/backend/set"},
		{new(SetAdd), "entries beside --file", "entries beside text"},
		{new(KeyDel), "--force removes it, --all does not", "force: true removes it, --all does not"},
		{new(VIPSet), "as --check tcp, or --quic-server-id 1", "as check.type tcp, or quic_server_id 1"},
		{new(BackendAdd), "--encap gue", "encapsulation gue"},
	} {
		if got := InMembers(c.request, c.text); got != c.want {
			t.Errorf("%T: %q, want %q", c.request, got, c.want)
		}
	}
}

// TestCheckEntries refuses what no set can have, in the words of the kind that is meant.
func TestCheckEntries(t *testing.T) {
	for _, c := range []struct {
		entries       []string
		timeout, want string
	}{
		{nil, "", ""},
		{[]string{"192.0.2.1", "timeout", "10m", "2001:db8::/32"}, "1d", ""},
		{[]string{"192.0.2.1:53", "[2001:db8::1]:53"}, "", ""},
		{[]string{"x"}, "", `"x" is no address, prefix or range: write it as 192.0.2.1, 2001:db8::/32 or 192.0.2.1-192.0.2.7`},
		{[]string{"192.0.2.1", "192.0.2.0/33"}, "", `"192.0.2.0/33" is no prefix: write it as 192.0.2.0/24 or 2001:db8::/32`},
		{[]string{"192.0.2.1:99999"}, "", `"192.0.2.1:99999" is no address with a port: write it as 192.0.2.1:53 or [2001:db8::1]:53`},
		{[]string{"[2001:db8::1]:0"}, "", "[2001:db8::1]:0 has port 0, which no packet has: use 1 to 65535"},
		{[]string{"192.0.2.1"}, "10", "timeout 10 has no unit: use s, m, h or d, as in 10s"},
		{nil, "-5m", `"-5m" is no timeout: write a duration as 90s, 10m, 12h or 1d, 0 for ever`},
	} {
		got := ""
		if err := checkEntries(c.entries, c.timeout); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q, %q: %q, want %q", c.entries, c.timeout, got, c.want)
		}
	}
}
