// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFilePositions spoils the router's files and wants the position of each error.
func TestFilePositions(t *testing.T) {
	const head = "[general]\nid = \"br1\"\nconfig_dir = \"DIR\"\n"
	const topology = `{
  "isd_as": "1-ff00:0:110",
  "mtu": 1472,
  "border_routers": {
    "br1": {
      "internal_addr": "127.0.0.1:30042",
      "interfaces": {"1": {
        "underlay": {"local": "192.0.2.1:50000", "remote": "192.0.2.2:50000"},
        "isd_as": "1-ff00:0:111", "link_to": "child"}}}}}
`
	for _, tt := range []struct{ name, more, old, new, want string }{
		{"wrong TOML", "[router\n", "", "", "br.toml:4:8: line 4: "},
		{"unknown key", "[router]\n  speed = 1\n", "", "", "br.toml:5:3: line 5: router.speed: unknown key"},
		{"wrong value", "[router]\nbatch_size = -1\n", "", "", "br.toml:5:14: router.batch_size: -1 is below 1"},
		{"missing key", "[router]\ndispatched_port_end = 7\n", "", "", "br.toml:4:2: router.dispatched_port_start: not set"},
		{"wrong JSON", "", `"mtu": 1472,`, `"mtu": 1472`, "topology.json:4:3: line 4: not JSON"},
		{"wrong type", "", `"mtu": 1472,`, `"mtu": "x",`, "topology.json:3:12: line 3: mtu: want a whole number"},
		{"missing field", "", `"mtu": 1472,`, ``, "topology.json: mtu: not set"},
		{"wrong address", "", "192.0.2.2:50000", "192.0.2.2", "topology.json:8:50: border_routers.br1.interfaces.1.underlay.remote: "},
		{"missing link type", "", `, "link_to": "child"`, ``, "topology.json:7:22: border_routers.br1.interfaces.1.link_to: "},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "br.toml")
		for name, text := range map[string]string{path: strings.ReplaceAll(head+tt.more, "DIR", dir), filepath.Join(dir, "topology.json"): strings.Replace(topology, tt.old, tt.new, 1)} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := LoadTopologyOnly(path)
		var located *fileError
		if !errors.As(err, &located) {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := located.At().Error(); !strings.HasPrefix(got, dir+"/"+tt.want) {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if at := (&fileError{file: "/no/such.toml"}).At(); at != nil {
		t.Errorf("a file that is not there has position %v", at)
	}
}
