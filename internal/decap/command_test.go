// SPDX-License-Identifier: Apache-2.0

package decap

import (
	"net/netip"
	"testing"

	"culvert/internal/decap/decapplane"
)

// TestCommand: the command has the same options as the flags that have attached the end of tunnels.
func TestCommand(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("10.0.0.11")}
	for want, f := range map[string]Flags{
		"culvert lb decap add v0 --from any":           {GUEPort: 6080, From: []string{"any"}},
		"culvert lb decap add v0 --vip 192.0.2.1":      {GUEPort: 6080, From: []string{"any"}, VIP: []string{"192.0.2.1"}},
		"culvert lb decap add v0 --from 10.200.0.0/16": {GUEPort: 6080, From: []string{"10.200.0.0/16"}},
		"culvert lb decap add v0 --from 10.1.2.3/32 --vip 192.0.2.1 --vip 2001:db8::1": {
			GUEPort: 6080, From: []string{"10.1.2.3"}, VIP: []string{"192.0.2.1", "2001:db8::1"},
		},
		"culvert lb decap add v0 --gue-port 7 --from 10.0.0.0/8 --local 10.0.0.11 --generic": {
			GUEPort: 7, From: []string{"10.0.0.0/8"}, Local: []string{"10.0.0.11"}, Generic: true,
		},
	} {
		o, err := f.options()
		if err != nil {
			t.Fatal(err)
		}
		if len(o.Local) == 0 {
			o.Local, o.OwnLocal = own, true
		}
		if got := Command(decapplane.End{Interface: "v0", Options: o}); got != want {
			t.Errorf("%+v: %q, want %q", f, got, want)
		}
	}
}
