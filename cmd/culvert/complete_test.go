// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestCompletion runs the hidden command by which shells complete a command line.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"bench run ":                       "veth workers cost scion3 route filter lb ndr latency generator fleet :4",
		"bench run scion3 ":                ":4",
		"bench run scion3 --rows ":         "culvert culvert+reference reference :4",
		"bench run veth --cpus ":           "1 2 :4",
		"bench run scion3 --rows culvert,": "culvert,culvert+reference culvert,reference :4",
		"lab up ":                          "all bgp filter fleet lb scion3 veth :4",
		"lab up --name ":                   ":4",
		"lab exec no-such-lab as1 ":        ":0",
		"gen scion --topology ":            "json :8",
		"gen scion --keys ":                ":16",
		"gen scion --direction inside":     "external->external external->sibling sibling->external inside->external external->host :4",
		"run -c ":                          "toml :8",
		"run ":                             ":4",
		"key add ":                         "0 1 :4",
		"key add 0 ":                       ":0",
		"key add --on ":                    ":4",
		"attach -c ":                       "toml :8",
		"version ":                         ":4",
		"filter add ":                      "drop pass count limit :4",
		"filter add drop ":                 ":4",
		"filter add --per ":                "src dst src/24,48 dst/24,48 :4",
		"filter top --by ":                 "src dst prefix port :4",
		"filter test ":                     ":0",
		"filter dump ":                     ":4",
		"filter dump --sets ":              ":16",
		"lb dump --on ":                    ":4",
		"filter set add x --type ":         "prefix endpoint :4",
		"filter set ":                      "add del list replace show :4",
		"lb vip add --check ":              "tcp http https udp none :4",
		"lb vip set ":                      ":4",
		"lb backend add --encap ":          "ipip gue l2 :4",
		"lb backend del 192.0.2.1:80/tcp ": ":4",
		"lb ":                              "backend decap drain dump explain flows seed show undrain vip :4",
		"lb show ":                         ":4",
		"lb explain 192.0.2.1:80/tcp x ":   ":4",
		"lb flows --backend ":              ":4",
		"lb flows --client ":               ":4",
		"lb decap del ":                    ":4",
		"lb decap add --vip ":              ":4",
		"route get ":                       ":4",
		"route get --from ":                ":4",
		"route check --samples ":           ":4",
		"route ":                           "check get show :4",
		"doctor --neighbor ":               ":4",
		"watch --on no-such-router -i ":    ":4",
	} {
		var out bytes.Buffer
		root := newRootCmd()
		root.SetOut(&out)
		root.SetErr(&bytes.Buffer{})
		root.SetArgs(append([]string{"__completeNoDesc"}, strings.Split(line, " ")...))
		if err := root.Execute(); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if got := strings.Join(strings.Fields(out.String()), " "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
