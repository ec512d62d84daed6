// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	"culvert/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }
