// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"testing"

	"culvert/internal/testbed"
)

// The kernel that the tests run on has bridges, and the check leaves nothing behind.
func TestBridgeAvailable(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	if err := (&Bridge{}).Available(); err != nil {
		t.Error(err)
	}
}
