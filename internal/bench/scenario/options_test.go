// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"io"
	"os"
	"testing"
	"time"
)

// testRouter is the reference router that the test target of the Makefile builds beforehand.
const testRouter = "../../../bin/peers/router"

// shortOptions are options for a short measurement of every row of a scenario.
func shortOptions(t *testing.T) Options {
	t.Helper()
	if _, err := os.Stat(testRouter); err != nil {
		t.Fatalf("%v: run 'make peers' first", err)
	}
	return Options{Rounds: 1, Round: 10 * time.Millisecond, Router: testRouter, Progress: io.Discard}
}
