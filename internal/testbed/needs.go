// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"os"
	"testing"
)

// NeedRoot fails a test that cannot be run, so that it is never taken for one that passed.
func NeedRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces and loads eBPF programs: run it as root")
	}
}
