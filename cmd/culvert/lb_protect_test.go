// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestLBProtectedVIP protects a service that is a VIP, and adds a VIP that is a protected service. Both are refused, and nothing
// changes.
func TestLBProtectedVIP(t *testing.T) {
	b := newLBBed(t)
	expect := func(want int, text string, args ...string) {
		t.Helper()
		status, out, errs := culvert(t, args...)
		if status != want || !strings.Contains(out+errs, text) {
			t.Errorf("culvert %v: exit status %d, %q, want %d with %q", args, status, out+errs, want, text)
		}
	}
	const both = "cannot be protected by SYN cookies and be VIP "
	path := b.file(lbConfig)
	run := startCulvert(t, "run", "-c", path)
	run.waitFor(t, "backend=fd00::11")
	expect(1, both+"192.0.2.1:80/tcp at once", "filter", "protect", "192.0.2.1:80")
	expect(1, both+"[2001:db8::1]:80/tcp at once", "filter", "protect", "[2001:db8::1]:80", "--forwarded")
	expect(0, "192.0.2.1:81 is protected", "filter", "protect", "192.0.2.1:81")
	expect(1, both+"192.0.2.1:81/tcp at once", "lb", "vip", "add", "192.0.2.1:81/tcp")
	expect(1, both+"192.0.2.1/tcp at once", "lb", "vip", "add", "192.0.2.1/tcp")
	expect(0, "VIP 192.0.2.1:81/udp added", "lb", "vip", "add", "192.0.2.1:81/udp")
	run.interrupt(t)

	more := b.file(lbConfig + "[[lb.vip]]\naddress = \"192.0.2.1:81\"\nprotocol = \"tcp\"\n")
	expect(1, "culvert filter unprotect ADDRESS:PORT", "run", "-c", more)
	expect(0, "not protected any more", "filter", "unprotect", "192.0.2.1:81")
	expect(1, ":3:11: 192.0.2.1:80 "+both[:len(both)-1], "run", "-c",
		b.file("interfaces = [\"lb0\"]\n[[filter.protect]]\naddress = \"192.0.2.1:80\"\n"+lbConfig[len("interfaces = [\"lb0\"]\n"):]))
	b.lb(0, "192.0.2.1:80/tcp  active", "show")
}
