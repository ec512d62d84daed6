// SPDX-License-Identifier: Apache-2.0

package tomltext

import "testing"

type testFile struct {
	Interfaces []string    `toml:"interfaces,omitempty"`
	Workers    *struct{}   `toml:"workers"`
	Rules      []*testRule `toml:"rule"`
	hidden     int
}

type testRule struct {
	Action string `toml:"action"`
	Expr   string `toml:"expr"`
	testCommon
}

type testCommon struct {
	Comment string `toml:"comment"`
}

func TestNearest(t *testing.T) {
	for _, c := range []struct {
		path []string
		want string
	}{
		{[]string{"interfces"}, "interfaces"},
		{[]string{"interface"}, "interfaces"},
		{[]string{"Workers"}, "workers"},
		{[]string{"rules"}, "rule"},
		{[]string{"rule", "actoin"}, "action"},
		{[]string{"rule", "coment"}, "comment"},
		{[]string{"rule", "interfaces"}, ""},
		{[]string{"rule", "xyz"}, ""},
		{[]string{"nothing", "action"}, ""},
		{[]string{"interfaces", "x"}, ""},
		{nil, ""},
	} {
		if got := Nearest(&testFile{hidden: 1}, c.path); got != c.want {
			t.Errorf("%v: %q, want %q", c.path, got, c.want)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"same", "same", 0}, {"bpg", "bgp", 1}, {"abc", "cab", 2}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("from %q to %q %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
