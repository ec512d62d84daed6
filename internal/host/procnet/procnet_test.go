// SPDX-License-Identifier: Apache-2.0

package procnet

import "testing"

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]string{
		"0100007F:C350":                         "127.0.0.1:50000",
		"B80D0120000000000000000001000000:0035": "[2001:db8::1]:53",
		"0000000000000000FFFF0000010200C0:0035": "192.0.2.1:53",
	} {
		if got, ok := parseAddress(text); !ok || got.String() != want {
			t.Errorf("%s gives %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "local_address", "0100007F", "01:02", "0100007F:10000"} {
		if got, ok := parseAddress(text); ok {
			t.Errorf("%q gives %s, want nothing", text, got)
		}
	}
}
