// SPDX-License-Identifier: Apache-2.0

package version

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	deps := []*debug.Module{{Path: "example.org/other", Version: "v9.9.9"}, {Path: scionModule, Version: "v0.15.1"}}
	clean := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: "false"}}
	dirty := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: "true"}}
	for _, tt := range []struct {
		name, tag   string
		info        *debug.BuildInfo
		short, long string
	}{
		{"nothing known", "", nil, "dev", "culvert dev (scionproto of unknown version)"},
		{"without vcs", "", &debug.BuildInfo{GoVersion: "go1.26", Deps: deps}, "dev",
			"culvert dev (go1.26, scionproto v0.15.1)"},
		{"revision", "", &debug.BuildInfo{GoVersion: "go1.26", Deps: deps, Settings: clean}, "dev-0123456789ab",
			"culvert dev-0123456789ab (revision 0123456789ab, go1.26, scionproto v0.15.1)"},
		{"modified", "", &debug.BuildInfo{GoVersion: "go1.26", Deps: deps, Settings: dirty}, "dev-0123456789ab-dirty",
			"culvert dev-0123456789ab-dirty (revision 0123456789ab modified, go1.26, scionproto v0.15.1)"},
		{"tag", "v1.2", &debug.BuildInfo{GoVersion: "go1.26", Deps: deps, Settings: clean}, "v1.2",
			"culvert v1.2 (revision 0123456789ab, go1.26, scionproto v0.15.1)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := short(tt.tag, tt.info); got != tt.short {
				t.Errorf("short is %q, want %q", got, tt.short)
			}
			if got := long(tt.tag, tt.info); got != tt.long {
				t.Errorf("long is %q, want %q", got, tt.long)
			}
		})
	}
}
