// SPDX-License-Identifier: Apache-2.0

package routejudge

import "testing"

// TestTables checks that the kernel accepts the tables that the generator makes.
func TestTables(t *testing.T) {
	pinToCPU(t)
	w := newTwin(t)
	g := newGenerator(1)
	w.ip(g.nexthopObjects())
	w.ip(g.fill(500))
	for range 10 {
		w.ip(g.churn(30))
	}
}
