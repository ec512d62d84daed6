// SPDX-License-Identifier: Apache-2.0

package tomltext

import (
	"errors"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

func TestUnquoted(t *testing.T) {
	for document, want := range map[string]string{
		"interfaces = [eth1, \"eth2\"]":     `eth1 is not quoted: write "eth1"`,
		"interfaces = ['eth1', eth2.7]":     `eth2.7 is not quoted: write "eth2.7"`,
		"interfaces = eth1":                 `eth1 is not quoted: write "eth1"`,
		"a = 1\ninterfaces = [\n  eth1,\n]": `eth1 is not quoted: write "eth1"`,
		"interfaces = [\n  'eth0', nan1\n]": `nan1 is not quoted: write "nan1"`,
		"interfaces = [true1]":              `true1 is not quoted: write "true1"`,
		"interfaces = [10gbe]":              `10gbe is not quoted: write "10gbe"`,
		"address = 192.0.2.1:80":            `192.0.2.1:80 is not quoted: write "192.0.2.1:80"`,
		"file = /etc/x.txt":                 `/etc/x.txt is not quoted: write "/etc/x.txt"`,
		"mirror = True":                     "True is not a value: write true",
		"[scion":                            "",
		"a = [1, 2":                         "",
		"a = \"x":                           "",
		"a = 'x' y":                         "",
		"a =":                               "",
		"a b = 1":                           "",
		"x = 1 # of [eth1\ny = \"":          "",
	} {
		var into map[string]any
		err := toml.Unmarshal([]byte(document), &into)
		var at *toml.DecodeError
		if !errors.As(err, &at) {
			t.Fatalf("%q: %v", document, err)
		}
		row, col := at.Position()
		if got := Unquoted([]byte(document), row, col); got != want {
			t.Errorf("%q, at %d:%d %v: %q, want %q", document, row, col, err, got, want)
		}
	}
}
