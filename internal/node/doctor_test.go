// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"culvert/internal/doctor"
)

// writeFiles returns a function that writes a file of a temporary directory and returns its path.
func writeFiles(t *testing.T) (dir string, write func(name, text string) string) {
	t.Helper()
	dir = t.TempDir()
	return dir, func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
}

// writeRouter writes the files of SCION router br1 with one link, from local to remote. It returns the path of its TOML file.
func writeRouter(dir string, write func(name, text string) string, local, remote string) string {
	write("topology.json", `{"isd_as": "1-ff00:0:110", "mtu": 1472, "border_routers": {"br1": {
		"internal_addr": "127.0.0.1:30042", "interfaces": {"1": {
			"underlay": {"local": "`+local+`", "remote": "`+remote+`"},
			"isd_as": "1-ff00:0:111", "link_to": "child", "mtu": 1472}}}}}`)
	return write("br.toml", "[general]\nid = \"br1\"\nconfig_dir = \""+dir+"\"\n")
}

// TestDoctorOptions wants what files of each kind ask of the host.
func TestDoctorOptions(t *testing.T) {
	dir, write := writeFiles(t)
	router := writeRouter(dir, write, "192.0.2.1:50000", "192.0.2.2:50000")
	addr, addrPort := netip.MustParseAddr, netip.MustParseAddrPort
	sockets := []netip.AddrPort{addrPort("127.0.0.1:30042"), addrPort("192.0.2.1:50000")}
	underlay := []netip.Addr{addr("127.0.0.1"), addr("192.0.2.1")}
	given := addr("203.0.113.9") // by the user, in front of those of the file
	for _, tt := range []struct {
		name, path string
		want       doctor.Options
	}{
		{"a SCION router's file", router, doctor.Options{
			Remote: []netip.Addr{given, addr("192.0.2.2")}, Local: underlay, Sockets: sockets,
			Forwards: true, Stages: doctor.Stages{SCION: true},
		}},
		{"culvert's file that names it", write("culvert.toml", `interfaces = ["eth7"]
[scion]
config = "br.toml"
`), doctor.Options{
			Interfaces: []string{"eth7"}, Remote: []netip.Addr{given, addr("192.0.2.2")}, Local: underlay, Sockets: sockets, NoLB: true,
			Forwards: true, Stages: doctor.Stages{SCION: true},
		}},
		{"an IP router", write("route.toml", `interfaces = ["eth8"]
[route]
`), doctor.Options{
			Interfaces: []string{"eth8"}, Remote: []netip.Addr{given}, Waits: true,
			Route: true, NoSCION: true, NoLB: true, Forwards: true, Stages: doctor.Stages{Route: true},
		}},
		{"a filter that does not wait for interfaces", write("refuse.toml", `interfaces = ["eth8"]
missing = "refuse"
[filter]
`), doctor.Options{
			Interfaces: []string{"eth8"}, Remote: []netip.Addr{given}, NoSCION: true, NoLB: true, Stages: doctor.Stages{Filter: true},
		}},
		{"a load balancer", write("lb.toml", `interfaces = ["eth9"]
[lb]
source4 = "10.200.0.0/16"
[[lb.vip]]
address = "192.0.2.1:80"
protocol = "tcp"
[lb.vip.check]
type = "tcp"
[[lb.vip.backend]]
address = "10.0.0.11"
[[lb.vip.backend]]
address = "fd00::11"
encapsulation = "gue"
`), doctor.Options{
			Interfaces: []string{"eth9"}, Remote: []netip.Addr{given}, Waits: true,
			NoSCION: true, Forwards: true, Stages: doctor.Stages{LB: true},
			LB: &doctor.LB{
				VIPs: []doctor.LBVIP{{Addr: addr("192.0.2.1"), Checked: true}}, Source4: true,
				Backends: []doctor.LBBackend{{Addr: addr("10.0.0.11"), Overhead: 20}, {Addr: addr("fd00::11"), Overhead: 48}},
			},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := doctor.Options{Remote: []netip.Addr{given}}
			if err := DoctorOptions(tt.path, &got); err != nil {
				t.Fatal(err)
			}
			if culverts := tt.path != router; culverts != (got.File != nil) || culverts && got.File.Path != tt.path {
				t.Errorf("looked at %+v", got.File)
			}
			if refused := strings.HasSuffix(tt.path, "refuse.toml"); refused {
				want := []string{tt.path + `:1:15: interface eth8 does not exist: see 'ip link'`}
				if !reflect.DeepEqual(got.File.Refused, want) {
					t.Errorf("refused because of %q, want %q", got.File.Refused, want)
				}
			}
			got.File = nil
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// TestDoctorOptionsErrors has files that cannot be started with. Each error is one line and says where the file is wrong.
func TestDoctorOptionsErrors(t *testing.T) {
	dir, write := writeFiles(t)
	writeRouter(dir, write, "192.0.2.1:50000", "192.0.2.2:50000")
	for _, tt := range []struct{ file, text, want string }{
		{"empty.toml", "", "empty.toml: general.id: not set"},
		{"broken.toml", "[scion", "broken.toml: line 1: "},
		{"bad.toml", "[scion]\nconfig = 3\n", "bad.toml:2:10: "},
		{"lost.toml", "[scion]\nconfig = \"no.toml\"", "no.toml: no such file"},
		{"rule.toml", `interfaces = ["eth9"]
[filter]
[[filter.rule]]
name = "x"
action = "drop"
expression = "tcp prot 80"
`, "rule.toml:6:14: "},
		{"set.toml", `interfaces = ["eth9"]
[filter]
[[filter.set]]
name = "bad"
file = "none.txt"
`, "none.txt: no such file"},
		{"both.toml", `interfaces = ["eth9"]
[[filter.protect]]
address = "192.0.2.1:80"
[lb]
[[lb.vip]]
address = "192.0.2.1:80"
protocol = "tcp"
`, "both.toml:3:11: 192.0.2.1:80 cannot be protected by SYN cookies and be VIP 192.0.2.1:80/tcp at once"},
	} {
		t.Run(tt.file, func(t *testing.T) { wantDoctorError(t, write(tt.file, tt.text), tt.want) })
	}
	t.Run("no file", func(t *testing.T) { wantDoctorError(t, filepath.Join(dir, "none.toml"), "none.toml: no such file") })
}

func wantDoctorError(t *testing.T, path, want string) {
	t.Helper()
	err := DoctorOptions(path, &doctor.Options{})
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one line with %q", err, want)
	}
}
