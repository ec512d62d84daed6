// SPDX-License-Identifier: Apache-2.0

package decap

import (
	"strings"
	"testing"

	"culvert/internal/show/usage"
)

func TestOptions(t *testing.T) {
	f := Flags{
		GUEPort: 6080, From: []string{"10.200.0.0/16", "10.1.2.3", "fd00:200::/64"},
		VIP: []string{"192.0.2.1", "2001:db8::1"}, Local: []string{"10.0.0.11", "fd00::11"}, Generic: true,
	}
	o, err := f.options()
	if err != nil {
		t.Fatal(err)
	}
	if words(o.From) != "10.200.0.0/16, 10.1.2.3/32, fd00:200::/64" || words(o.VIPs) != "192.0.2.1, 2001:db8::1" ||
		words(o.Local) != "10.0.0.11, fd00::11" || o.GUEPort != 6080 || !o.Generic {
		t.Errorf("%+v", o)
	}
}

// TestOptionsOpen: an end of tunnels is open only with --from any and without --vip.
func TestOptionsOpen(t *testing.T) {
	for _, tt := range []struct {
		f    Flags
		open bool
	}{
		{Flags{GUEPort: 1, From: []string{"any"}}, true},
		{Flags{GUEPort: 1, From: []string{"any"}, VIP: []string{"192.0.2.1"}}, false},
		{Flags{GUEPort: 1, From: []string{"10.0.0.0/8"}}, false},
		{Flags{GUEPort: 1, VIP: []string{"192.0.2.1"}}, false},
	} {
		if o, err := tt.f.options(); err != nil || o.Open() != tt.open {
			t.Errorf("%+v: %+v, %v", tt.f, o, err)
		}
	}
}

func TestOptionsRefused(t *testing.T) {
	for _, tt := range []struct {
		f    Flags
		want string
	}{
		{Flags{GUEPort: 1}, "without --from and --vip anybody could send anything into this host"},
		{Flags{GUEPort: 1, Local: []string{"10.0.0.1"}}, "or --from any"},
		{Flags{GUEPort: 1, From: []string{"any", "10.0.0.0/8"}}, "give it alone"},
		{Flags{GUEPort: 0}, "--gue-port 0: use 1 to 65535"},
		{Flags{GUEPort: 65536}, "--gue-port 65536"},
		{Flags{GUEPort: 1, From: []string{"10.200.0.1/16"}}, "write 10.200.0.0/16"},
		{Flags{GUEPort: 1, From: []string{"10.200.0.0/33"}}, `"10.200.0.0/33" is no prefix`},
		{Flags{GUEPort: 1, From: []string{"::ffff:10.0.0.0/104"}}, "is no prefix"},
		{Flags{GUEPort: 1, From: []string{"east"}}, `--from "east" is no address`},
		{Flags{GUEPort: 1, VIP: []string{"192.0.2.1:80"}}, `--vip "192.0.2.1:80" is no address`},
		{Flags{GUEPort: 1, VIP: []string{"224.0.0.1"}}, "--vip 224.0.0.1: no packet of a tunnel has it"},
		{Flags{GUEPort: 1, From: []string{"any"}, Local: []string{"::ffff:10.0.0.1"}}, "is no address"},
		{Flags{GUEPort: 1, From: []string{"any"}, Local: []string{"fe80::1%eth0"}}, "is no address"},
		{Flags{GUEPort: 1, From: []string{"any"}, Local: []string{"127.0.0.1"}}, "--local 127.0.0.1: no packet"},
		{Flags{GUEPort: 1, From: []string{"any"}, Local: []string{"0.0.0.0"}}, "--local 0.0.0.0: no packet"},
		{Flags{GUEPort: 1, Local: []string{"fd00::1"}, From: []string{"fd00::/8", "10.0.0.0/8"}},
			"--from 10.0.0.0/8: no --local is of its family"},
		{Flags{GUEPort: 1, Local: []string{"fd00::1", "10.0.0.1"}, From: []string{"fd00::/8"}},
			"--local 10.0.0.1: no --from is of its family"},
	} {
		_, err := tt.f.options()
		if !usage.Is(err) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.f, err, tt.want)
		}
	}
}
