// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"
	"testing"

	"culvert/internal/edit"
)

// TestMembers has requests that encoding/json takes, though names are in another case, or there twice, or missing.
func TestMembers(t *testing.T) {
	for _, c := range []struct {
		to         any
		text, want string
	}{
		{new(edit.RuleAdd), ` {"rule" : "a\\\"}" , "action":"drop", "all" :true, "entries": 7, "src":["@a", "]"], "interfaces": []} `, ""},
		{new(edit.RuleAdd), `{"\u0072ule": "a", "action": "drop"}`, ""},
		{new(edit.RuleAdd), `{"\u0072ule": "a", "action": "drop", "rule": "b"}`, "member rule twice"},
		{new(edit.RuleAdd), `{"action": "drop", "action": "drop"}`, "member action twice"},
		{new(edit.RuleAdd), `{"ACTION": "drop"}`, "no member ACTION:"},
		{new(edit.RuleAdd), `{"rule": "action"}`, "lacks the member action"},
		{new(edit.VIPAdd), `{"vip": "a", "vlans": [1, 2], "check": {"type": "tcp", "port": 1, "interval": "1s"}}`, ""},
		{new(edit.VIPAdd), `{"vip": "a", "check": null}`, ""},
		{new(edit.VIPAdd), `{"vip": "a", "check": {"type": "tcp", "type": "udp"}}`, "member type twice"},
		{new(edit.VIPAdd), `{"check": {"Type": "tcp"}, "vip": "a"}`, "no member Type:"},
		{new(edit.Undrain), `{"vip": "a"}`, ""},
		{new(edit.Undrain), `{"VIP": "a"}`, "no member VIP:"},
		{new(edit.FilterFlush), `{}`, ""},
		{new(edit.FilterFlush), "", "no body"},
		{new(edit.KeyDel), `{"force": true}`, "lacks the member index"},
		{new(edit.SetAdd), `{"set": "a", "Text": "192.0.2.1"}`, "no member Text:"},
		{new(Reload), `{"confirm": "90s", "dry_run": false}`, ""},
		{new(Reload), `{"Keep": true}`, "no member Keep:"},
		{new(Reload), `{"keep": true, "keep": false}`, "member keep twice"},
	} {
		got := ""
		if err := decode([]byte(c.text), c.to); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%T %s: %q, want %q", c.to, c.text, got, c.want)
		}
	}
}

// FuzzMembers has texts that encoding/json takes. Going through them ends, within the text.
func FuzzMembers(f *testing.F) {
	for _, text := range []string{`{}`, `{"vip": "a", "check": {"type": "\""}}`, `{"vip":"a","vlans":[1 , 2],"hash":null}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(_ *testing.T, text []byte) { _ = decode(text, new(edit.VIPAdd)) })
}
