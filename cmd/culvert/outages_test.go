// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"
)

// TestDoctorUnserved has doctor say that a VIP has no backend, until it has one, and not of one that was drained by hand.
func TestDoctorUnserved(t *testing.T) {
	b := newLBBed(t)
	const head = "interfaces = ['lb0']\n[lb]\n[[lb.vip]]\naddress = '192.0.2.1:80'\nprotocol = 'tcp'\n"
	file := b.file(head + "[[lb.vip.backend]]\naddress = '203.0.113.9'\n")
	runAttached(t, file)
	const unserved = "no backend takes new flows of VIP 192.0.2.1:80/tcp"
	says := func(want bool) {
		t.Helper()
		out := ""
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if _, out, _ = culvert(t, "doctor"); strings.Contains(out, unserved) == want {
				return
			}
		}
		t.Fatalf("doctor says\n%s", out)
	}
	says(true)
	rewrite(t, file, head+"[[lb.vip.backend]]\naddress = '10.0.0.11'\n")
	b.expect(0, "is in force", "reload")
	says(false)
	rewrite(t, file, head+"[[lb.vip.backend]]\naddress = '203.0.113.9'\n")
	b.expect(0, "is in force", "reload")
	says(true)
	b.lb(0, "", "drain 192.0.2.1:80/tcp")
	says(false)
}
