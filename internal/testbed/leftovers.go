// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// held lists the namespaces, programs, maps and links of which the process has file descriptors.
func held(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, f := range files {
		target, err := os.Readlink(f)
		if err == nil && (strings.HasPrefix(target, "net:") || strings.Contains(target, "bpf")) {
			kept = append(kept, target)
		}
	}
	slices.Sort(kept)
	return kept
}

// CheckLeftovers makes the test fail if it leaves temporary files, programs or namespaces behind.
func CheckLeftovers(t *testing.T) {
	t.Helper()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	before := held(t)
	t.Cleanup(func() {
		if after := held(t); !slices.Equal(before, after) {
			t.Errorf("held %q before, %q afterwards", before, after)
		}
		if files, err := os.ReadDir(tmp); err != nil || len(files) > 0 {
			t.Errorf("left files %v, error %v", files, err)
		}
	})
}
