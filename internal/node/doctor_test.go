// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"culvert/internal/doctor"
)

// TestDoctorOptions gives doctor a router's file and culvert's own that names it.
func TestDoctorOptions(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("topology.json", `{"isd_as": "1-ff00:0:110", "mtu": 1472, "border_routers": {"br1": {
		"internal_addr": "127.0.0.1:30042", "interfaces": {"1": {
			"underlay": {"local": "192.0.2.1:50000", "remote": "192.0.2.2:50000"},
			"isd_as": "1-ff00:0:111", "link_to": "child", "mtu": 1472}}}}}`)
	router := write("br.toml", "[general]\nid = \"br1\"\nconfig_dir = \""+dir+"\"\n")
	own := write("culvert.toml", "interfaces = [\"eth7\"]\n[scion]\nconfig = \"br.toml\"\n")

	sockets := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:30042"), netip.MustParseAddrPort("192.0.2.1:50000")}
	remote := []netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("192.0.2.2")}
	for _, tt := range []struct {
		path       string
		interfaces []string
	}{{router, nil}, {own, []string{"eth7"}}} {
		o := doctor.Options{Remote: remote[:1:1]}
		if err := DoctorOptions(tt.path, &o); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(o.Interfaces, tt.interfaces) || !slices.Equal(o.Sockets, sockets) ||
			!slices.Equal(o.Remote, remote) || len(o.Local) != 2 || o.Server != 0 || o.Route {
			t.Errorf("%s gives %+v", filepath.Base(tt.path), o)
		}
	}

	routing := write("route.toml", "interfaces = [\"eth8\"]\n[route]\n")
	o := doctor.Options{Remote: remote[:1:1]}
	if err := DoctorOptions(routing, &o); err != nil {
		t.Fatal(err)
	}
	if !o.Route || !slices.Equal(o.Interfaces, []string{"eth8"}) || len(o.Sockets)+len(o.Local) != 0 || len(o.Remote) != 1 {
		t.Errorf("an IP router's file gives %+v", o)
	}
	if o.Stages != (doctor.Stages{Route: true}) || !o.Waits {
		t.Errorf("an IP router's file gives the stages %+v, waits %t", o.Stages, o.Waits)
	}
	refuses := write("refuse.toml", "interfaces = [\"eth8\"]\nmissing = \"refuse\"\n[filter]\n")
	o = doctor.Options{}
	if err := DoctorOptions(refuses, &o); err != nil {
		t.Fatal(err)
	}
	if o.Stages != (doctor.Stages{Filter: true}) || o.Waits {
		t.Errorf("a filter's file gives the stages %+v, waits %t", o.Stages, o.Waits)
	}

	balancer := write("lb.toml", "interfaces = [\"eth9\"]\n[lb]\nsource4 = \"10.200.0.0/16\"\n[[lb.vip]]\naddress = \"192.0.2.1:80\"\n"+
		"protocol = \"tcp\"\n[lb.vip.check]\ntype = \"tcp\"\n[[lb.vip.backend]]\naddress = \"10.0.0.11\"\n"+
		"[[lb.vip.backend]]\naddress = \"fd00::11\"\nencapsulation = \"gue\"\n")
	o = doctor.Options{}
	if err := DoctorOptions(balancer, &o); err != nil {
		t.Fatal(err)
	}
	want := doctor.LB{
		VIPs: []doctor.LBVIP{{Addr: netip.MustParseAddr("192.0.2.1"), Checked: true}}, Source4: true,
		Backends: []doctor.LBBackend{{Addr: netip.MustParseAddr("10.0.0.11"), Overhead: 20}, {Addr: netip.MustParseAddr("fd00::11"), Overhead: 48}},
	}
	if o.LB == nil || !reflect.DeepEqual(*o.LB, want) {
		t.Errorf("a load balancer's file gives %+v", o.LB)
	}

	for path, want := range map[string]string{
		write("empty.toml", ""):                             "empty.toml: general.id: not set",
		write("broken.toml", "[scion"):                      "broken.toml: line 1: ",
		write("bad.toml", "[scion]\nconfig = 3\n"):          "bad.toml:2:10: ",
		write("lost.toml", "[scion]\nconfig = \"no.toml\""): "no.toml: no such file",
		filepath.Join(dir, "none.toml"):                     "none.toml: no such file",
		write("rule.toml", "interfaces = [\"eth9\"]\n[filter]\n[[filter.rule]]\nname = \"x\"\naction = \"drop\"\nexpression = \"tcp prot 80\"\n"):                         "rule.toml:6:14: ",
		write("set.toml", "interfaces = [\"eth9\"]\n[filter]\n[[filter.set]]\nname = \"bad\"\nfile = \"none.txt\"\n"):                                                     "none.txt: no such file",
		write("both.toml", "interfaces = [\"eth9\"]\n[[filter.protect]]\naddress = \"192.0.2.1:80\"\n[lb]\n[[lb.vip]]\naddress = \"192.0.2.1:80\"\nprotocol = \"tcp\"\n"): "both.toml:3:11: 192.0.2.1:80 cannot be protected by SYN cookies and be VIP 192.0.2.1:80/tcp at once",
	} {
		err := DoctorOptions(path, &doctor.Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want one line with %q", err, want)
		}
	}
}
