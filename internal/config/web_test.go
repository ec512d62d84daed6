// SPDX-License-Identifier: Apache-2.0

package config

import "testing"

// TestWebURL wants addresses that a browser can go to.
func TestWebURL(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:9480":    "http://127.0.0.1:9480/",
		"localhost:9480":    "http://localhost:9480/",
		":9480":             "http://127.0.0.1:9480/",
		"0.0.0.0:9480":      "http://127.0.0.1:9480/",
		"[::]:9480":         "http://[::1]:9480/",
		"[2001:db8::1]:80":  "http://[2001:db8::1]:80/",
		"edge.example:9480": "http://edge.example:9480/",
	} {
		if got := WebURL(listen); got != want {
			t.Errorf("%s: %s, want %s", listen, got, want)
		}
	}
}
