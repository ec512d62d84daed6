// SPDX-License-Identifier: Apache-2.0

package pins

import "testing"

// TestNames: Unescape returns what was escaped, and an escaped name is never reserved.
func TestNames(t *testing.T) {
	for name, pin := range map[string]string{
		"br1": "br1", "a.b": "a%2eb", "a%2eb": "a%252eb", "%decap": "%25decap", "..": "%2e%2e", "%": "%25", ".7": "%2e7",
	} {
		if got := Escape(name); got != pin || Unescape(got) != name || Reserved(got) {
			t.Errorf("%s is pinned as %s, which stands for %s, and is reserved: %v", name, got, Unescape(got), Reserved(got))
		}
	}
	for _, pin := range []string{"%decap", "%old0"} {
		if !Reserved(pin) {
			t.Errorf("%s is not reserved", pin)
		}
	}
}
