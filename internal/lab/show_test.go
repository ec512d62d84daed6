// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"
	"strings"
	"testing"
)

func TestSummary(t *testing.T) {
	prefixes := func(list ...string) (p []netip.Prefix) {
		for _, s := range list {
			p = append(p, netip.MustParsePrefix(s))
		}
		return p
	}
	l := &Lab{
		Name: "x",
		Namespaces: []Namespace{{Name: "as1", NetNS: "cv-x-as1", Interfaces: []Interface{
			{Name: "to-a", Addrs: prefixes("198.18.1.1/24", "2001:db8:1::1/64", "198.18.20.1/24")},
			{Name: "to-b", Addrs: prefixes("2001:db8:2::1/64")},
		}}},
		ASes: []AS{{NS: "as1", IA: "1-ff00:0:1", Router: "culvert"}},
	}
	var b strings.Builder
	if err := l.WriteSummary(&b); err != nil {
		t.Fatal(err)
	}
	const want = "lab x is up\n" +
		"  as1  cv-x-as1  1-ff00:0:1 culvert  to-a 198.18.1.1/24 2001:db8:1::1/64, to-b 2001:db8:2::1/64\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
