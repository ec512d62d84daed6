// SPDX-License-Identifier: Apache-2.0

package insn

import (
	"os"
	"testing"

	"culvert/internal/bench/load"
)

func TestMain(m *testing.M) {
	load.AvoidRealtime = true
	os.Exit(m.Run())
}
