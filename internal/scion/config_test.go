// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/scrypto"

	"culvert/internal/scion/scionplane"
)

// writeTOML writes a router's TOML file for one of testdata's ASes.
func writeTOML(t *testing.T, as, id, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "br.toml")
	text := fmt.Sprintf("[general]\nid = %q\nconfig_dir = %q\n\n%s\n", id, copied(t, "testdata/"+as), more)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// copied returns a copy of a directory of files in which the keys are secret, as no checkout has them.
func copied(t *testing.T, from string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	keys, err := filepath.Glob(filepath.Join(dir, "keys", "*.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if err := os.Chmod(key, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func ia(s string) uint64 { return uint64(addr.MustParseIA(s)) }

func ap(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func TestLoad(t *testing.T) {
	tests := []struct {
		name, as, id, more string
		want               scionplane.Config
		bfd                []bool
	}{
		{
			name: "IPv4, siblings, peering, all sizes of interface ID", as: "v4", id: "br1",
			want: scionplane.Config{
				LocalIA: ia("1-ff00:0:110"), PortStart: 31000, PortEnd: 32767,
				Services: []netip.Addr{netip.MustParseAddr("10.0.0.10")},
				Links: []scionplane.Link{
					{Name: "internal", Local: ap("10.0.0.1:30042")},
					{Name: "1", Scope: scionplane.ScopeExternal, IfID: 1, NeighborIA: ia("1-ff00:0:111"),
						Local: ap("192.0.2.1:50000"), Remote: ap("192.0.2.2:50001")},
					{Name: "sibling->10.0.0.2:30042", Scope: scionplane.ScopeSibling,
						Local: ap("10.0.0.1:30042"), Remote: ap("10.0.0.2:30042")},
					{Name: "sibling->10.0.0.3:30042", Scope: scionplane.ScopeSibling,
						Local: ap("10.0.0.1:30042"), Remote: ap("10.0.0.3:30042")},
					{Name: "300", Scope: scionplane.ScopeExternal, IfID: 300, NeighborIA: ia("2-ff00:0:210"),
						Local: ap("192.0.2.5:50000"), Remote: ap("192.0.2.6:50001")},
					{Name: "65535", Scope: scionplane.ScopeExternal, IfID: 65535, NeighborIA: ia("1-ff00:0:112"),
						Local: ap("192.0.2.9:50000"), Remote: ap("192.0.2.10:50001")},
				},
				Interfaces: []scionplane.Interface{
					{ID: 1, Link: 1, Type: scionplane.LinkChild},
					{ID: 2, Link: 2, Type: scionplane.LinkChild},
					{ID: 3, Link: 3, Type: scionplane.LinkCore},
					{ID: 20, Link: 2, Type: scionplane.LinkChild},
					{ID: 300, Link: 4, Type: scionplane.LinkCore},
					{ID: 65535, Link: 5, Type: scionplane.LinkPeer},
				},
			},
			bfd: []bool{false, true, true, true, false, true},
		},
		{
			name: "one sibling alone, BFD off", as: "v4", id: "br3",
			more: "[router]\ndispatched_port_start = 40000\ndispatched_port_end = 40100\n[router.bfd]\ndisable = true",
			want: scionplane.Config{
				LocalIA: ia("1-ff00:0:110"), PortStart: 40000, PortEnd: 40100,
				Services: []netip.Addr{netip.MustParseAddr("10.0.0.10")},
				Links: []scionplane.Link{
					{Name: "internal", Local: ap("10.0.0.3:30042")},
					{Name: "sibling->10.0.0.1:30042", Scope: scionplane.ScopeSibling,
						Local: ap("10.0.0.3:30042"), Remote: ap("10.0.0.1:30042")},
					{Name: "sibling->10.0.0.2:30042", Scope: scionplane.ScopeSibling,
						Local: ap("10.0.0.3:30042"), Remote: ap("10.0.0.2:30042")},
					{Name: "3", Scope: scionplane.ScopeExternal, IfID: 3, NeighborIA: ia("2-ff00:0:220"),
						Local: ap("203.0.113.1:50000"), Remote: ap("203.0.113.2:50000")},
				},
				Interfaces: []scionplane.Interface{
					{ID: 1, Link: 1, Type: scionplane.LinkChild},
					{ID: 2, Link: 2, Type: scionplane.LinkChild},
					{ID: 3, Link: 3, Type: scionplane.LinkCore},
					{ID: 20, Link: 2, Type: scionplane.LinkChild},
					{ID: 300, Link: 1, Type: scionplane.LinkCore},
					{ID: 65535, Link: 1, Type: scionplane.LinkPeer},
				},
			},
			bfd: []bool{false, false, false, false},
		},
		{
			name: "IPv6 inside, both outside, all ports", as: "v6", id: "br1",
			want: scionplane.Config{
				LocalIA: ia("1-ff00:0:111"), PortStart: 1, PortEnd: 65535,
				Links: []scionplane.Link{
					{Name: "internal", Local: ap("[fd00::1]:30042")},
					{Name: "1", Scope: scionplane.ScopeExternal, IfID: 1, NeighborIA: ia("1-ff00:0:110"),
						Local: ap("[2001:db8::1]:50000"), Remote: ap("[2001:db8::2]:50001")},
					{Name: "4", Scope: scionplane.ScopeExternal, IfID: 4, NeighborIA: ia("1-ff00:0:115"),
						Local: ap("192.0.2.1:50000"), Remote: ap("192.0.2.2:50001")},
					{Name: "sibling->[fd00::2]:30042", Scope: scionplane.ScopeSibling,
						Local: ap("[fd00::1]:30042"), Remote: ap("[fd00::2]:30042")},
				},
				Interfaces: []scionplane.Interface{
					{ID: 1, Link: 1, Type: scionplane.LinkParent},
					{ID: 4, Link: 2, Type: scionplane.LinkChild},
					{ID: 5, Link: 3, Type: scionplane.LinkPeer},
				},
			},
			bfd: []bool{false, true, true, true},
		},
		{
			name: "an old file with public addresses and no ports", as: "old", id: "br1",
			want: scionplane.Config{
				LocalIA: ia("1-ff00:0:112"), PortStart: 1, PortEnd: 0,
				Links: []scionplane.Link{
					{Name: "internal", Local: ap("127.0.0.9:31002")},
					{Name: "1", Scope: scionplane.ScopeExternal, IfID: 1, NeighborIA: ia("1-ff00:0:110"),
						Local: ap("127.0.0.4:50000"), Remote: ap("127.0.0.5:50000")},
				},
				Interfaces: []scionplane.Interface{{ID: 1, Link: 1, Type: scionplane.LinkCore}},
			},
			bfd: []bool{false, true},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			r, err := Load(writeTOML(t, tc.as, tc.id, tc.more))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(r.Datapath, tc.want) {
				t.Errorf("data path configuration\n%+v, want\n%+v", r.Datapath, tc.want)
			}
			if !reflect.DeepEqual(r.BFD, tc.bfd) {
				t.Errorf("BFD %v, want %v", r.BFD, tc.bfd)
			}
			if got := r.Control.IA; uint64(got) != tc.want.LocalIA {
				t.Errorf("reference data plane gets AS %s", got)
			}
		})
	}
}

// TestKey compares the forwarding key with the one that the control service computes MACs of hop fields with.
func TestKey(t *testing.T) {
	r, err := Load(writeTOML(t, "v4", "br1", ""))
	if err != nil {
		t.Fatal(err)
	}
	factory, err := scrypto.HFMacFactory([]byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := scrypto.InitMac(r.Keys[0].Secret[:])
	if err != nil {
		t.Fatal(err)
	}
	theirs := factory()
	block := []byte("sixteen bytes ..")
	_, _ = ours.Write(block)
	_, _ = theirs.Write(block)
	if a, b := ours.Sum(nil), theirs.Sum(nil); string(a) != string(b) {
		t.Errorf("MAC %x, the control service makes %x", a, b)
	}
}

// TestLoadErrors breaks one file of a valid AS at a time.
func TestLoadErrors(t *testing.T) {
	tests := []struct {
		name string
		// file gets new in place of old. With both empty it is removed.
		file, old, new string
		// want is the error, with DIR for the directory. If it ends in a space, the library's own text follows.
		want string
	}{
		{"no TOML", "br.toml", "", "", "reading DIR/br.toml: no such file or directory"},
		{"TOML that does not parse", "br.toml", "[general]", "[general", "reading DIR/br.toml: line 1: "},
		{"unknown key", "br.toml", "[general]", "[general]\nidd = 1\n",
			"reading DIR/br.toml: line 2: general.idd: unknown key (did you mean \"id\"?): remove it or correct its name"},
		{"wrong type", "br.toml", "[general]", "[router]\nbatch_size = \"x\"\n[general]",
			"reading DIR/br.toml: line 2: router.batch_size: want a whole number, found string"},
		{"wrong type of a switch", "br.toml", "[general]", "[router.bfd]\ndisable = 1\n[general]",
			"reading DIR/br.toml: line 2: router.bfd.disable: want true or false, found integer"},
		{"log level", "br.toml", "[general]", "[log.console]\nlevel = \"loud\"\n[general]",
			`reading DIR/br.toml: log.console.level: "loud": use debug, info, warn or error`},
		{"stack trace level", "br.toml", "[general]", "[log.console]\nstacktrace_level = \"loud\"\n[general]",
			`reading DIR/br.toml: log.console.stacktrace_level: "loud": use none, debug, info, warn or error`},
		{"no ID", "br.toml", `id = "br1"`, "",
			"reading DIR/br.toml: general.id: not set: write the router's name in the topology"},
		{"no directory", "br.toml", `config_dir = "DIR"`, `config_dir = "DIR/nowhere"`,
			"reading DIR/br.toml: general.config_dir: no directory DIR/nowhere"},
		{"batch size", "br.toml", "[general]", "[router]\nbatch_size = -4\n[general]",
			"reading DIR/br.toml: router.batch_size: -4 is below 1"},
		{"half a port range", "br.toml", "[general]", "[router]\ndispatched_port_end = 4\n[general]",
			"reading DIR/br.toml: router.dispatched_port_start: not set though dispatched_port_end is: set both or none"},
		{"port too large", "br.toml", "[general]",
			"[router]\ndispatched_port_start = 1\ndispatched_port_end = 65536\n[general]",
			"reading DIR/br.toml: router.dispatched_port_end: 65536 is not a port: use 0 to 65535"},
		{"unknown router", "br.toml", `id = "br1"`, `id = "br9"`,
			`reading DIR/br.toml: general.id: no router "br9" in DIR/topology.json, which has br1, br2, br3, br4`},

		{"no topology", "topology.json", "", "", "reading DIR/topology.json: no such file: put the AS's topology there or correct general.config_dir in DIR/br.toml"},
		{"topology that does not parse", "topology.json", `"mtu": 1472,`, `"mtu": 1472`,
			"reading DIR/topology.json: line 4: not JSON: "},
		{"a string for a number", "topology.json", `"mtu": 1472,`, `"mtu": "1472",`,
			"reading DIR/topology.json: line 3: mtu: want a whole number, found string"},
		{"no MTU", "topology.json", `"mtu": 1472,`, "",
			"reading DIR/topology.json: mtu: not set: write the number of bytes, such as 1472"},
		{"negative MTU", "topology.json", `"mtu": 1472,`, `"mtu": -1,`,
			"reading DIR/topology.json: mtu: -1 is no MTU: use 1 to 65535 bytes"},
		{"large MTU", "topology.json", `"mtu": 1472,`, `"mtu": 65536,`,
			"reading DIR/topology.json: mtu: 65536 is no MTU: use 1 to 65535 bytes"},
		{"MTU of a link", "topology.json", `"link_to": "child",
          "mtu": 1472`, `"link_to": "child",
          "mtu": -1`,
			"reading DIR/topology.json: border_routers.br1.interfaces.1.mtu: -1 is no MTU: use 1 to 65535 bytes"},
		{"BFD interval without unit", "topology.json", `"link_to": "peer"`,
			`"bfd": {"desired_min_tx_interval": "200"}, "link_to": "peer"`,
			`reading DIR/topology.json: border_routers.br1.interfaces.65535.bfd.desired_min_tx_interval: "200" is not a duration: write it as "200ms"`},
		{"BFD interval a number", "topology.json", `"link_to": "peer"`,
			`"bfd": {"required_min_rx_interval": 200}, "link_to": "peer"`,
			`reading DIR/topology.json: border_routers.br1.interfaces.65535.bfd.required_min_rx_interval: "200" is not a duration: write it as "200ms"`},
		{"AS number", "topology.json", `"isd_as": "1-ff00:0:110",`, `"isd_as": "1-xx",`,
			`reading DIR/topology.json: isd_as: "1-xx": write it as 1-ff00:0:110`},
		{"no AS", "topology.json", `"isd_as": "1-ff00:0:110",`, "",
			"reading DIR/topology.json: isd_as: not set: write it as 1-ff00:0:110"},
		{"AS wildcard", "topology.json", `"isd_as": "1-ff00:0:110",`, `"isd_as": "1-0",`,
			"reading DIR/topology.json: isd_as: 1-0 has a wildcard: write the AS's own number"},
		{"port range", "topology.json", "31000-32767", "32767-31000",
			"reading DIR/topology.json: dispatched_ports: "},
		{"attribute", "topology.json", `"core"`, `"centre"`, "reading DIR/topology.json: invalid attribute "},
		{"interface ID", "topology.json", `"65535": {`, `"65536": {`,
			"reading DIR/topology.json: border_routers.br1.interfaces.65536: not an interface ID: use 1 to 65535"},
		{"interface 0", "topology.json", `"65535": {`, `"0": {`,
			"reading DIR/topology.json: border_routers.br1.interfaces.0: not an interface ID: use 1 to 65535"},
		{"interface twice", "topology.json", `"20": {`, `"1": {`,
			"reading DIR/topology.json: border_routers.br2.interfaces.1: border router br1 has an interface 1 already: IDs are unique in an AS"},
		{"no internal address", "topology.json", `"internal_addr": "10.0.0.2:30042",`, "",
			"reading DIR/topology.json: border_routers.br2.internal_addr: not set: write it as ADDR:PORT"},
		{"internal address without port", "topology.json", "10.0.0.1:30042", "10.0.0.1",
			`reading DIR/topology.json: border_routers.br1.internal_addr: "10.0.0.1": address 10.0.0.1: missing port in address: write it as ADDR:PORT`},
		{"any internal address", "topology.json", "10.0.0.1:30042", "0.0.0.0:30042",
			`reading DIR/topology.json: border_routers.br1.internal_addr: "0.0.0.0:30042": write the router's own address and its port`},
		{"same internal address", "topology.json", "10.0.0.2:30042", "10.0.0.1:30042",
			"reading DIR/topology.json: border_routers.br2.internal_addr: 10.0.0.1:30042 is the internal address of br1 too"},
		{"remote address", "topology.json", "192.0.2.2:50001", "192.0.2.2",
			`reading DIR/topology.json: border_routers.br1.interfaces.1.underlay.remote: "192.0.2.2" is not an address and port: write it as ADDR:PORT`},
		{"sibling's local address", "topology.json", `"local": "198.51.100.1:50000",`, "",
			"reading DIR/topology.json: border_routers.br2.interfaces.2.underlay.local: not set: write it as ADDR:PORT"},
		{"two IP versions", "topology.json", "192.0.2.2:50001", "[2001:db8::1]:50001",
			"reading DIR/topology.json: border_routers.br1.interfaces.1.underlay.remote: [2001:db8::1]:50001 and the local address 192.0.2.1:50000 are of different IP versions"},
		{"remote address twice", "topology.json", "192.0.2.6:50001", "192.0.2.2:50001",
			"reading DIR/topology.json: border_routers.br1.interfaces.300.underlay.remote: 192.0.2.2:50001 is the remote address of link 1 already"},
		{"underlay", "topology.json", `"udpip"`, `"carrier pigeon"`,
			`reading DIR/topology.json: border_routers.br1.interfaces.300.underlay.provider: "carrier pigeon" is not known: write "udpip" or leave it out`},
		{"old bind", "topology.json", `"provider": "udpip"`, `"bind": "10.0.0.1"`,
			"reading DIR/topology.json: border_routers.br1.interfaces.300.underlay.bind: no longer understood: write the address to bind as underlay.local"},
		{"neighbor's AS", "topology.json", `"1-ff00:0:111"`, `"ff00:0:111"`,
			`reading DIR/topology.json: border_routers.br1.interfaces.1.isd_as: "ff00:0:111": write the neighbor's number as 1-ff00:0:110`},
		{"link type", "topology.json", `"link_to": "peer"`, `"link_to": "friend"`,
			`reading DIR/topology.json: border_routers.br1.interfaces.65535.link_to: "friend": use core, parent, child or peer`},
		{"link type of another kind of AS", "topology.json", `"link_to": "peer"`, `"link_to": "parent"`,
			"reading DIR/topology.json: border_routers.br1.interfaces.65535.link_to: Illegal link type for core AS "},
		{"service", "topology.json", `"cs1": {`, `"cs1": null, "cs2": {`,
			"reading DIR/topology.json: control_service.cs1: null: describe the server or remove it"},
		{"router null", "topology.json", `"br4": {`, `"br5": null, "br4": {`,
			"reading DIR/topology.json: border_routers.br5: null: describe the router or remove it"},

		{"no key", "keys/master0.key", "", "", "reading DIR/keys/master0.key: no such file: put the AS's master key there or correct general.config_dir in DIR/br.toml"},
		{"no second key", "keys/master1.key", "", "", "reading DIR/keys/master1.key: no such file: put the AS's master key there or correct general.config_dir in DIR/br.toml"},
		{"key that others may read", "keys/master0.key", "chmod", "0640",
			"reading DIR/keys/master0.key: master key: others than its owner may use DIR/keys/master0.key (mode 0640): chmod 0600 DIR/keys/master0.key"},
		{"second key that others may read", "keys/master1.key", "chmod", "0604",
			"reading DIR/keys/master1.key: master key: others than its owner may use DIR/keys/master1.key (mode 0604): chmod 0600 DIR/keys/master1.key"},
		{"keys that others may replace", "keys", "chmod", "0775",
			"reading DIR/keys/master0.key: master key: others than root may write to DIR/keys (mode 0775), the way to DIR/keys/master0.key: chmod go-w DIR/keys"},
		{"not base64", "keys/master0.key", "MDEy", "M!Ey",
			"reading DIR/keys/master0.key: master key: illegal base64 data at input byte 1: write 16 bytes in standard base64"},
		{"short key", "keys/master0.key", "MDEyMzQ1Njc4OWFiY2RlZg==", "MDEyMzQ1Njc4OWFiY2Rl",
			"reading DIR/keys/master0.key: master key: 15 bytes long: write 16 bytes in standard base64"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			dir := spoiled(t, tc.file, tc.old, tc.new)
			_, err := Load(filepath.Join(dir, "br.toml"))
			if err == nil {
				t.Fatal("no error")
			}
			got := strings.ReplaceAll(err.Error(), dir, "DIR")

			if got != tc.want && !(strings.HasSuffix(tc.want, " ") && strings.HasPrefix(got, tc.want)) {
				t.Errorf("error\n%s, want\n%s", got, tc.want)
			}
			if strings.Contains(got, "\n") {
				t.Error("error has several lines")
			}
		})
	}
}

// spoiled copies a valid AS, breaks one file of the copy as TestLoadErrors says, and returns its directory.
func spoiled(t *testing.T, file, old, new string) string {
	t.Helper()
	dir := copied(t, "testdata/v4")
	toml := fmt.Sprintf("[general]\nid = \"br1\"\nconfig_dir = %q\n", dir)
	if err := os.WriteFile(filepath.Join(dir, "br.toml"), []byte(toml), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, file)
	if old == "" && new == "" {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	if old == "chmod" {
		mode, err := strconv.ParseUint(new, 8, 32)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, os.FileMode(mode)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	old, new = strings.ReplaceAll(old, "DIR", dir), strings.ReplaceAll(new, "DIR", dir)
	if !strings.Contains(string(raw), old) {
		t.Fatalf("%s has no %q to replace", file, old)
	}
	text := strings.Replace(string(raw), old, new, 1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLoadTopologyOnly(t *testing.T) {
	dir := spoiled(t, "keys/master0.key", "", "")
	r, err := LoadTopologyOnly(filepath.Join(dir, "br.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Keys != nil || len(r.Datapath.Links) != 6 {
		t.Errorf("key %v, %d links, want no key and 6 links", r.Keys, len(r.Datapath.Links))
	}
	dir = spoiled(t, "keys/master0.key", "MDEy", "M!Ey")
	if _, err := LoadTopologyOnly(filepath.Join(dir, "br.toml")); err == nil {
		t.Error("a broken key file was accepted")
	}
}
