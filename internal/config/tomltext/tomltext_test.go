// SPDX-License-Identifier: Apache-2.0

package tomltext

import (
	"net/netip"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/scionproto/scion/pkg/private/util"
)

func TestPlain(t *testing.T) {
	type table struct{ A int }
	for text, want := range map[string]string{
		"flag = 3":       "want true or false, found integer",
		"flag = \"yes\"": "want true or false, found string",
		"number = \"x\"": "want a whole number, found string",
		"number = 1.5":   "want a whole number, found float",
		"text = 3":       "want text in quotes, found integer",
		"text = [\"a\"]": "want text in quotes, found array",
		"list = 3":       "want a list, found integer",
		"list = [3]":     "want text in quotes, found integer",
		"table = 3":      "want a table, found integer",
		"small = 300":    "300 is out of range: use 0 to 255",
		"wait = \"200\"": `"200" is not a duration: write it as "200ms"`,
		"addr = \"x y\"": `"x y" is no address`,
		"wait = 5":       `"5" is not a duration: write it as "200ms"`,
	} {
		var file struct {
			Flag   bool
			Number int
			Text   string
			List   []string
			Table  table
			Small  uint8
			Wait   util.DurWrap
			Addr   netip.Addr
		}
		err := toml.Unmarshal([]byte(text), &file)
		if err == nil {
			t.Errorf("%s: no error", text)
		} else if got := Plain(err); got != want {
			t.Errorf("%s: %q (%v), want %q", text, got, err, want)
		}
	}
}
