// SPDX-License-Identifier: Apache-2.0

package sflowstage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"culvert/internal/config"
)

// load reads a file with a table [sflow].
func load(t *testing.T, table string) (*Table, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "culvert.toml")
	if err := os.WriteFile(path, []byte("interfaces = [\"west\"]\n[sflow]\n"+table), 0o600); err != nil {
		t.Fatal(err)
	}
	node, err := config.Load(path, []config.Part{{Name: Stage{}.Name(), New: Stage{}.Table}})
	if err != nil {
		return nil, err
	}
	return node.Tables[Stage{}.Name()].(*Table), nil
}

func TestTable(t *testing.T) {
	for table, want := range map[string]string{
		`collector = "192.0.2.1"`:            "192.0.2.1:6343",
		`collector = "192.0.2.1:99"`:         "192.0.2.1:99",
		`collector = "2001:db8::1"`:          "[2001:db8::1]:6343",
		`collector = "[2001:db8::1]:99"`:     "[2001:db8::1]:99",
		`collector = "flows.example.net"`:    "flows.example.net:6343",
		`collector = "flows.example.net:99"`: "flows.example.net:99",
		`collector = "[fe80::1%eth0]:99"`:    "[fe80::1%eth0]:99",
	} {
		got, err := load(t, table)
		if err != nil {
			t.Errorf("%s: %v", table, err)
			continue
		}
		if s := &got.settings; s.collector() != want || s.Rate != DefaultRate || s.Header != DefaultHeader || s.Drops != 0 || s.polling != DefaultPolling {
			t.Errorf("%s: %s, %+v", table, s.collector(), *s)
		}
	}
	for table, want := range map[string]string{
		`rate = 10`:                                   "2:2: collector is missing",
		`collector = ""`:                              "collector is missing",
		`collector = ":6343"`:                         `3:13: collector = ":6343": use host:port`,
		`collector = "a:b"`:                           "use host:port",
		`collector = "a:0"`:                           `collector = "a:0": there is no port 0: use 1 to 65535`,
		`collector = "a:70000"`:                       "there is no port 70000: use 1 to 65535",
		`collector = ":99999"`:                        "there is no port 99999",
		`collector = "198.18.1.2:0"`:                  "there is no port 0",
		`collector = "a:-1"`:                          "use host:port",
		`collector = "a:1:2"`:                         "use host:port",
		`collector = "0.0.0.0"`:                       `collector = "0.0.0.0": no other host can have 0.0.0.0: use the collector's address`,
		`collector = "0.0.0.9:99"`:                    "no other host can have 0.0.0.9",
		`collector = "[::]:99"`:                       "no other host can have ::",
		`collector = "[::ffff:0.0.0.0]:99"`:           "no other host can have 0.0.0.0",
		`collector = "255.255.255.255"`:               "no other host can have 255.255.255.255",
		`collector = "http://a/"`:                     "use host:port",
		`collector = 6343`:                            "collector",
		"collector = \"a\"\nrate = 0":                 "4:8: rate = 0: one packet of so many is sampled: use 1 to 16777216",
		"collector = \"a\"\nrate = 16777217":          "rate = 16777217",
		"collector = \"a\"\nrate = 1.5":               "rate",
		"collector = \"a\"\ndrops = -1":               "drops = -1",
		"collector = \"a\"\ndrops = 10001":            "drops = 10001",
		"collector = \"a\"\nheader = 13":              "header = 13",
		"collector = \"a\"\nheader = 257":             "header = 257",
		"collector = \"a\"\npolling = \"x\"":          "polling = \"x\"",
		"collector = \"a\"\npolling = \"1ms\"":        "polling = \"1ms\"",
		"collector = \"a\"\npolling = \"-1s\"":        "polling = \"-1s\"",
		"collector = \"a\"\nagent = \"x\"":            "agent = \"x\": use an IP address by which the collector knows this host",
		"collector = \"a\"\nsource = \"x\"":           "source = \"x\": use an IP address of this host",
		"collector = \"a\"\nagent = \"0.1.2.3\"":      "agent = \"0.1.2.3\"",
		"collector = \"a\"\nagent = \"::\"":           "agent = \"::\"",
		"collector = \"a\"\nsource = \"224.0.0.1\"":   "source = \"224.0.0.1\"",
		"collector = \"::1\"\nsource = \"192.0.2.1\"": "the collector has an address of the other IP version",
		"collector = \"a\"\nsub_agent = 4294967296":   "sub_agent = 4294967296",
		"collector = \"a\"\nsampling = 10":            "sampling",
	} {
		_, err := load(t, table)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want %s", table, err, want)
		}
	}
}
