// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"os"
	"testing"
)

// NeedRoot makes a test fail without root, since a skipped test could pass for one that succeeded.
func NeedRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces and loads eBPF programs: run it as root")
	}
}
