// SPDX-License-Identifier: Apache-2.0

package scionplane_test

import (
	"testing"

	"culvert/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }
