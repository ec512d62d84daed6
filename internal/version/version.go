// SPDX-License-Identifier: Apache-2.0

// Package version says what this program was built from.
package version

import (
	_ "embed" // the file VERSION
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
)

// tag is set by the linker for a build with another version than that of the file VERSION:
// -ldflags '-X culvert/internal/version.tag=1.2.3'.
var tag string

// stamp is set by the linker, where Go itself does not note the revision (-buildvcs=false, a work tree of git beside its
// repository): the revision, and " modified" if the sources differ from it.
var stamp string

// file is the file VERSION, which the Debian package is named after too. The tree has a link to it at its top.
//
//go:embed VERSION
var file string

// scionModule is the path of the module of the reference router, whose data plane is the slow path.
const scionModule = "github.com/scionproto/scion"

// Short returns culvert's version in one word, as dpkg(1) compares it: 0.2.0~dev is older than 0.2.0.
func Short() string { return short(tag) }

// Long returns Short and what is known about the build, in one line.
func Long() string {
	info, _ := debug.ReadBuildInfo()
	return long(tag, info)
}

// Answer is what `culvert version -j` prints. Fields are added in later versions, never renamed.
type Answer struct {
	// Version is Short, and Long the line that is printed without -j.
	Version string `json:"version"`
	Long    string `json:"long"`
}

// WriteJSON writes an Answer.
func WriteJSON(out io.Writer) error { return json.NewEncoder(out).Encode(Answer{Short(), Long()}) }

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
	return fmt.Sprintf("culvert %s, scionproto %s", short(tag), scion(info))
}

func short(tag string) string {
	if tag != "" {
		return tag
	}
	return strings.TrimSpace(file)
}

func long(tag string, info *debug.BuildInfo) string {
	var more []string
	revision, modified := source(info)
	switch {
	case revision == "": // built from a tar, or without make
		revision = "unknown"
	case modified:
		revision += " modified"
	}
	more = append(more, "revision "+revision)
	if info != nil {
		more = append(more, info.GoVersion)
	}
	more = append(more, "scionproto "+scion(info))
	return fmt.Sprintf("culvert %s (%s)", short(tag), strings.Join(more, ", "))
}

// source returns the first 12 digits of the revision that was built, "" if it is not known, and whether it was modified.
func source(info *debug.BuildInfo) (revision string, modified bool) {
	if info == nil {
		info = new(debug.BuildInfo)
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	if revision == "" {
		revision, modified = strings.CutSuffix(stamp, " modified")
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
