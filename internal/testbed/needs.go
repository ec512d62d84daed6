// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"os"
	"testing"
)

// NeedRoot makes a test fail without root. It does not skip the test, since a skipped test looks like one that has passed.
func NeedRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces and loads eBPF programs: run it as root")
	}
}
