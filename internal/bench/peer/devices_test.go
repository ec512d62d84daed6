// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"testing"

	"culvert/internal/testbed"
)

// The kernel that the tests run on has bridges: the check itself leaves nothing and finds one.
func TestBridgeAvailable(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	if err := (&Bridge{}).Available(); err != nil {
		t.Error(err)
	}
}
