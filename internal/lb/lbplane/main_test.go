// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"os"
	"testing"

	"culvert/internal/testbed"
)

func TestMain(m *testing.M) {
	if times := os.Getenv(editorEnv); times != "" {
		os.Exit(runEditor(times))
	}
	testbed.Main(m)
}
