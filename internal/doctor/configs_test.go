// SPDX-License-Identifier: Apache-2.0

package doctor

import "testing"

func TestConfigs(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config Config
		want   []Finding
	}{
		{"as the files", Config{Router: "edge", File: "e.toml"}, nil},
		{"changed", Config{Router: "edge", File: "e.toml", Differs: []string{"e.toml", "bad.txt"}}, []Finding{{
			Status: Warn, Check: "configuration", Command: "culvert reload --on edge",
			Finding: "data plane edge: what is in force differs from the files: changed since they were read: e.toml, bad.txt",
		}}},
		{"refused", Config{Router: "edge", File: "e.toml", Differs: []string{"e.toml"}, Refused: "e.toml:3:1: no"}, []Finding{{
			Status: Fail, Check: "configuration", Command: "culvert check -c e.toml && culvert reload --on edge",
			Finding: "data plane edge: the last reload failed: e.toml:3:1: no",
		}}},
		{"not kept", Config{Router: "edge", File: "e.toml", Differs: []string{"e.toml"}, NotKept: true}, []Finding{{
			Status: Warn, Check: "configuration", Command: "culvert reload --on edge",
			Finding: "data plane edge: nobody has kept the last configuration in time, and the one before is in force again",
		}}},
		{"on trial", Config{Router: "edge", Trial: true}, []Finding{{
			Status: Warn, Check: "configuration", Command: "culvert reload --on edge --keep",
			Finding: "data plane edge: the configuration goes back to the one before unless somebody keeps it",
		}}},
		{"a page for this machine", Config{Router: "edge", Web: "127.0.0.1:9480"}, nil},
		{"a page for others", Config{Router: "edge", Web: "192.0.2.1:9480", WebOpen: true}, []Finding{{
			Status: Warn, Check: "web", Finding: "data plane edge: the page at 192.0.2.1:9480 has no password, and other machines may reach it: " +
				"listen at 127.0.0.1 and use a tunnel, or let a firewall say who may",
		}}},
		{"no page", Config{Router: "edge", File: "e.toml", Web: "192.0.2.1:9480", WebOpen: true, WebProblem: "no address"}, []Finding{{
			Status: Fail, Check: "web", Command: "culvert check -c e.toml", Finding: "data plane edge: nobody gets the page at 192.0.2.1:9480: no address",
		}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := checkConfigs([]Config{tt.config})
			if len(got) != len(tt.want) {
				t.Fatalf("found %+v", got)
			}
			for n := range got {
				if got[n] != tt.want[n] {
					t.Errorf("found %+v, want %+v", got[n], tt.want[n])
				}
			}
		})
	}
}
