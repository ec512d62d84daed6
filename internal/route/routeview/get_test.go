// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"culvert/internal/route/routeplane"
	"culvert/internal/show/usage"
)

// answer runs the command and returns its lines.
func answer(o GetOptions) (string, error) {
	var out bytes.Buffer
	err := Get(o, false, &out)
	return out.String(), err
}

func TestGet(t *testing.T) {
	b := newBed(t, routeplane.Options{Blocks4: 64, Blocks6: 1024})
	ip(t, "route add 10.71.0.0/16 via 10.2.0.9")
	ip(t, "route add 10.71.0.0/16 tos 0x10 via 10.2.0.8")
	b.mirror()
	for _, tt := range []struct{ to, from, in, want string }{
		{"192.0.2.7", "", "", `192.0.2.7 from 10.1.0.2 iif west: forward to 10.2.0.9 02:00:00:00:00:09 dev east, by the mirror (192.0.2.0/24)
kernel: 192.0.2.0/24 via 10.2.0.9 dev east
agree`},
		{"192.0.2.200", "10.1.0.77", "west", `192.0.2.200 from 10.1.0.77 iif west: forward to 10.2.0.8 02:00:00:00:00:08 dev east, by the mirror (192.0.2.128/25)
kernel: 192.0.2.128/25 via 10.2.0.8 dev east
agree`},
		{"2001:db8:1::5", "", "", `2001:db8:1::5 from fd01::2 iif west: forward to fd02::9 02:00:00:00:00:09 dev east, by the mirror (2001:db8:1::/48)
kernel: 2001:db8:1::/48 via fd02::9 dev east
agree`},
		{"2001:db8:2::5", "", "", "blackhole, dropped, by the mirror (2001:db8:2::/48)\nkernel: blackhole"},
		{"10.2.0.9", "", "", "forward to 10.2.0.9 02:00:00:00:00:09 dev east, by the mirror (10.2.0.0/24)\nkernel: 10.2.0.0/24 dev east"},
		{"10.2.0.1", "", "", "to this host, by the mirror (10.2.0.1/32)\nkernel: local 10.2.0.1\n"},
		{"10.2.0.255", "", "", "to this host, by the mirror (10.2.0.255/32)\nkernel: broadcast 10.2.0.255\n"},
		{"203.0.113.1", "", "", "no neighbor known, to the kernel (dev east), by the mirror (203.0.113.0/24)\nkernel: 203.0.113.0/24 via 10.2.0.77 dev east"},
		{"10.2.0.66", "", "", "no neighbor 10.2.0.66 known (dev east), to the kernel, asks the kernel: the mirror knows no neighbor of that address\n"},
		{"10.50.0.1", "", "", "to the kernel, because it leaves by a device that frames cannot be redirected to (dev south), by the mirror (10.50.0.0/16)\nkernel: 10.50.0.0/16 via 10.3.0.9 dev south"},
		{"10.70.0.1", "", "", "forward to one of several next hops, asks the kernel once for each flow: several next hops\nkernel: 10.70.0.0/16 by several next hops"},
		{"10.71.0.1", "", "", "asks the kernel: the way depends on more than the destination, or the tables are being read again (10.71.0.0/16)\n"},
		{"198.51.100.1", "", "", "blackhole, dropped, by the mirror (198.51.100.0/25)\nkernel: blackhole"},
		{"198.51.100.130", "", "", "unreachable, to the kernel, by the mirror (198.51.100.128/26)\nkernel: unreachable"},
		{"198.51.100.200", "", "", "prohibited, to the kernel, by the mirror (198.51.100.192/26)\nkernel: prohibit"},
		{"172.16.0.1", "", "", "no route, to the kernel, by the mirror\nkernel: no route"},
		{"127.0.0.1", "", "", "martian destination, to the kernel\nkernel: refused: 127.0.0.1 is a loopback address, and packets to it come from this host alone (martian)\n"},
		{"0.0.0.0", "", "", "kernel: refused: 0.0.0.0 is no destination (martian)\n"},
		{"192.0.2.7", "127.0.0.3", "west", "kernel: refused: no packet may come in from 127.0.0.3 (martian)\n"},
		{"224.0.0.5", "", "", "multicast, to the kernel\n"},
		{"10.60.0.1", "10.1.0.9", "west", "to the kernel, because it leaves by west, where it came in: would forward to 10.1.0.9"},
		{"192.0.2.7", "10.2.0.1", "west", "from an address of this host, to the kernel\nkernel: refused: the source 10.2.0.1 is an address of this host (martian)\n"},
		{"192.0.2.7", "10.3.0.9", "south", "to the kernel, because south does not carry culvert\n"},
		{"192.0.2.7", "10.9.9.9", "west", "forward to 10.2.0.9"},
	} {
		got, err := answer(GetOptions{To: addr(tt.to), From: from(tt.from), In: tt.in})
		if err != nil || !strings.Contains(got, tt.want) || !strings.HasSuffix(got, "\nagree\n") {
			t.Errorf("%s: %v, got\n%swant\n%s", tt.to, err, got, tt.want)
		}
	}

	// The name of the data plane, and JSON.
	var out bytes.Buffer
	must(t, Get(GetOptions{Name: "culvert", To: addr("192.0.2.7")}, true, &out))
	var got Got
	must(t, json.Unmarshal(out.Bytes(), &got))
	if !got.Agree || got.FastPath.By != "mirror" || got.FastPath.Reason != "route" || got.FastPath.Verdict != "fwd" ||
		got.FastPath.MAC != "02:00:00:00:00:09" || got.Kernel.Gateway != "10.2.0.9" || got.Router != "culvert" {
		t.Errorf("got %s", out.Bytes())
	}
	for _, tt := range []struct {
		o     GetOptions
		want  string
		usage bool
	}{
		{GetOptions{Name: "no", To: addr("192.0.2.7")}, "no data plane no on this machine", false},
		{GetOptions{To: addr("192.0.2.7"), In: "no"}, "no interface no here", false},
		{GetOptions{To: addr("192.0.2.7"), From: addr("::1")}, "addresses of one family", true},
	} {
		if _, err := answer(tt.o); err == nil || !strings.Contains(err.Error(), tt.want) || usage.Is(err) != tt.usage {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}

	// rp_filter looks at the route back to the source.
	sysctl(t, "ipv4/conf/west/rp_filter", "1")
	b.setDev("west", func(d *routeplane.Dev) { d.RPFilter = 1 })
	if got, err := answer(GetOptions{To: addr("192.0.2.7"), From: addr("10.2.0.5"), In: "west"}); err != nil ||
		!strings.Contains(got, "because the way back to 10.2.0.5 is not as rp_filter wants it\nkernel: refused: the way back to the source is another (rp_filter)\n") {
		t.Errorf("%v, got\n%s", err, got)
	}
	if got, err := answer(GetOptions{To: addr("192.0.2.7"), From: addr("10.1.0.255"), In: "west"}); err != nil ||
		!strings.Contains(got, "\nkernel: refused: the source 10.1.0.255 is a broadcast address (martian)\n") {
		t.Errorf("%v, got\n%s", err, got)
	}
	sysctl(t, "ipv4/conf/west/rp_filter", "0")
	b.setDev("west", func(d *routeplane.Dev) { d.RPFilter, d.Forward4 = 0, false })
	if got, _ := answer(GetOptions{To: addr("192.0.2.7"), In: "west"}); !strings.Contains(got, "to the kernel, because west forwards no IPv4\n") {
		t.Errorf("got\n%s", got)
	}
	b.setDev("west", func(d *routeplane.Dev) { d.Forward4 = true })

	// With policy rules, Run would disable the mirror. It does not run, so the test does.
	ip(t, "rule add from 10.1.0.99 table 100")
	must(t, b.plane.SetCurrent(0, 0))
	text, err := answer(GetOptions{To: addr("192.0.2.7"), In: "west"})
	if err != nil || !strings.Contains(text, "forward to 10.2.0.9 02:00:00:00:00:09 dev east, asks the kernel: policy rules (ip rule)") {
		t.Errorf("%v, got\n%s", err, text)
	}
	must(t, b.plane.SetPolicy(routeplane.Policy{Kernel4: true}))
	left := func(why string) {
		t.Helper()
		if text, err = answer(GetOptions{To: addr("192.0.2.7")}); err != nil || !strings.Contains(text, ": left to the kernel: "+why+"\n") {
			t.Errorf("%v, got\n%s", err, text)
		}
	}
	left("its process has said so in its log")
	ip(t, "xfrm policy add src 10.80.0.0/16 dst 10.81.0.0/16 dir fwd action block")
	left("IPsec policies (ip xfrm policy)")
	ip(t, "xfrm policy deleteall")
	if out, err := exec.Command("nft", "table ip f { chain c { type filter hook forward priority 0; policy drop; }; }").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	left("rules of netfilter (culvert doctor)")
}

func from(s string) (a netip.Addr) {
	if s == "" {
		return a
	}
	return addr(s)
}

// Get reports a wrong entry of the mirror, but only while the mirror is in use.
func TestGetDiffers(t *testing.T) {
	b := newBed(t, routeplane.Options{Blocks4: 64, Blocks6: 1024})
	b.mirror()
	root, _ := b.plane.Table4()
	root[192<<16|2] = 24<<23 | routeplane.HopBlackhole
	got, err := answer(GetOptions{To: addr("192.0.2.7")})
	if !errors.Is(err, errDiffers) || !strings.HasSuffix(got, "\ndiffers: the kernel says unicast\n") {
		t.Errorf("%v, got\n%s", err, got)
	}
	root[172<<16|16<<8] = root[10<<16|60<<8] // a way that the kernel does not have
	if got, err = answer(GetOptions{To: addr("172.16.0.7")}); !errors.Is(err, errDiffers) ||
		!strings.HasSuffix(got, "\ndiffers: the kernel does not forward it\n") {
		t.Errorf("%v, got\n%s", err, got)
	}
	must(t, b.plane.SetCurrent(0, 0))
	got, err = answer(GetOptions{To: addr("192.0.2.7")})
	if err != nil || !strings.Contains(got, "dev east, asks the kernel: the mirror is not current: the process is still reading the tables, or is behind (see its log)\n") {
		t.Errorf("%v, got\n%s", err, got)
	}
}
