// SPDX-License-Identifier: Apache-2.0

package version

import (
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	deps := []*debug.Module{{Path: "example.org/other", Version: "v9.9.9"}, {Path: scionModule, Version: "v0.15.1"}}
	clean := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: "false"}}
	dirty := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: "true"}}
	of := strings.TrimSpace(file)
	for _, tt := range []struct {
		name, tag   string
		info        *debug.BuildInfo
		short, long string
	}{
		{"nothing known", "", nil, of, "culvert " + of + " (revision unknown, scionproto of unknown version)"},
		{"without vcs", "", &debug.BuildInfo{GoVersion: "go1.26", Deps: deps}, of,
			"culvert " + of + " (revision unknown, go1.26, scionproto v0.15.1)"},
		{"revision", "", &debug.BuildInfo{GoVersion: "go1.26", Deps: deps, Settings: clean}, of,
			"culvert " + of + " (revision 0123456789ab, go1.26, scionproto v0.15.1)"},
		{"modified", "", &debug.BuildInfo{GoVersion: "go1.26", Deps: deps, Settings: dirty}, of,
			"culvert " + of + " (revision 0123456789ab modified, go1.26, scionproto v0.15.1)"},
		{"tag", "v1.2", &debug.BuildInfo{GoVersion: "go1.26", Deps: deps, Settings: clean}, "v1.2",
			"culvert v1.2 (revision 0123456789ab, go1.26, scionproto v0.15.1)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := short(tt.tag); got != tt.short {
				t.Errorf("short is %q, want %q", got, tt.short)
			}
			if got := long(tt.tag, tt.info); got != tt.long {
				t.Errorf("long is %q, want %q", got, tt.long)
			}
		})
	}
}

// TestStamp wants the linker's revision where Go has noted none.
func TestStamp(t *testing.T) {
	defer func() { stamp = "" }()
	noted := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef0123"}}
	for text, want := range map[string]string{"fedcba987654": "revision fedcba987654, ", "fedcba987654 modified": "revision fedcba987654 modified, "} {
		stamp = text
		if got := long("", &debug.BuildInfo{}); !strings.Contains(got, want) {
			t.Errorf("stamp %q: %q", text, got)
		}
		if got := long("", &debug.BuildInfo{Settings: noted}); !strings.Contains(got, "revision 0123456789ab, ") {
			t.Errorf("stamp %q beside Go's: %q", text, got)
		}
	}
}

// TestFile: the version is one that dpkg compares, the file at the top of the tree is the one that is built in, and CHANGELOG.md
// has a section for it.
func TestFile(t *testing.T) {
	top, err := os.ReadFile("../../VERSION")
	if err != nil {
		t.Fatal(err)
	}
	if string(top) != file {
		t.Errorf("VERSION is %q, and %q is built in", top, file)
	}
	of := strings.TrimSpace(file)
	if !regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(~[a-z0-9.]+)?$`).MatchString(of) {
		t.Errorf("VERSION is %q, want something like 0.2.0 or 0.2.0~dev", of)
	}
	changes, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(changes), "\n## "+of+"\n") {
		t.Errorf("CHANGELOG.md has no section '## %s'", of)
	}
}
