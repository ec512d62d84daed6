// SPDX-License-Identifier: Apache-2.0

// Package version says what this program was built from.
package version

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// tag is set by the linker: -ldflags '-X culvert/internal/version.tag=v1.2.3'.
var tag string

// scionModule is the path of the module of the reference router, whose data plane is the slow path.
const scionModule = "github.com/scionproto/scion"

// Short returns culvert's version in one word: the tag, or dev with the revision, or dev if that is not known.
func Short() string {
	info, _ := debug.ReadBuildInfo()
	return short(tag, info)
}

// Long returns Short and what is known about the build, in one line.
func Long() string {
	info, _ := debug.ReadBuildInfo()
	return long(tag, info)
}

// Revision returns the first 12 digits of the revision that was built, "" if it is not known.
func Revision() string {
	info, _ := debug.ReadBuildInfo()
	revision, _ := source(info)
	return revision
}

// WithSCION returns culvert's version and that of the reference router in it. The log, pages and metrics of the reference
// router show it in place of their own version.
func WithSCION() string {
	info, _ := debug.ReadBuildInfo()
	return fmt.Sprintf("culvert %s, scionproto %s", short(tag, info), scion(info))
}

func short(tag string, info *debug.BuildInfo) string {
	if tag != "" {
		return tag
	}
	revision, modified := source(info)
	if revision == "" {
		return "dev"
	}
	if modified {
		return "dev-" + revision + "-dirty"
	}
	return "dev-" + revision
}

func long(tag string, info *debug.BuildInfo) string {
	var more []string
	if revision, modified := source(info); revision != "" {
		if modified {
			revision += " modified"
		}
		more = append(more, "revision "+revision)
	}
	if info != nil {
		more = append(more, info.GoVersion)
	}
	more = append(more, "scionproto "+scion(info))
	return fmt.Sprintf("culvert %s (%s)", short(tag, info), strings.Join(more, ", "))
}

// source returns the first 12 digits of the revision that was built, "" if it is not known, and whether it was modified.
func source(info *debug.BuildInfo) (revision string, modified bool) {
	if info == nil {
		return "", false
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	return revision, modified
}

// scion returns the version of the reference router's module.
func scion(info *debug.BuildInfo) string {
	if info != nil {
		for _, m := range info.Deps {
			if m.Path == scionModule {
				return m.Version
			}
		}
	}
	return "of unknown version"
}
