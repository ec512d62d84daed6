// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// kernelObjects lists the namespaces, programs, maps and links of which the process has file descriptors.
func kernelObjects(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range files {
		target, err := os.Readlink(f)
		if err == nil && (strings.HasPrefix(target, "net:") || strings.Contains(target, "bpf")) {
			found = append(found, target)
		}
	}
	slices.Sort(found)
	return found
}

// CheckLeftovers makes the test fail if it leaves temporary files, programs, maps, links or namespaces behind.
func CheckLeftovers(t *testing.T) {
	t.Helper()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	before := kernelObjects(t)
	t.Cleanup(func() {
		if after := kernelObjects(t); !slices.Equal(before, after) {
			t.Errorf("open were %q, and are %q after the test", before, after)
		}
		if files, err := os.ReadDir(tmp); err != nil || len(files) > 0 {
			t.Errorf("temporary files are left: %v, error %v", files, err)
		}
	})
}
