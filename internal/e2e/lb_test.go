// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"culvert/internal/lab"
)

// TestLB runs HTTP over TCP through two load balancers while backends, balancers and links fail, change and come back.
func TestLB(t *testing.T) {
	l := up(t, "lb", lab.Options{Name: "lb"})
	for _, part := range []struct {
		name string
		run  func(*balanced)
	}{
		{"same balancer", (*balanced).testSameBalancer},
		{"drain", (*balanced).testDrain},
		{"forged segments", (*balanced).testForged},
		{"edits", (*balanced).testEdits},
		{"tools", (*balanced).testTools},
		{"agreement", (*balanced).testAgree},
		{"health", (*balanced).testHealth},
		{"nobody", (*balanced).testNobody},
		{"VIP drained", (*balanced).testVIPDrained},
		{"upgrade", (*balanced).testUpgrade},
		{"balancer dies", (*balanced).testBalancerDies},
		{"graceful restart", (*balanced).testGracefulRestart},
		{"datagrams", (*balanced).testDatagrams},
		{"MTU", (*balanced).testMTU},
	} {
		ok := t.Run(part.name, func(t *testing.T) {
			b := &balanced{T: t, lab: l}
			b.normal()
			part.run(b)
		})
		if !ok {
			for _, ns := range balancers {
				log, err := os.ReadFile(filepath.Join(l.Dir, "logs", lab.CulvertProcess(ns)+".log"))
				t.Logf("log of %s: %v\n%s", ns, err, log[max(0, len(log)-8<<10):])
			}
			return // the parts behind it would fail for the same reason
		}
	}
}
