// SPDX-License-Identifier: Apache-2.0

package decapplane

import (
	"testing"

	"culvert/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }
