// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestDecapInterfaceMadeAgain deletes an interface where tunnels end and makes it again. Without a process, status, doctor and
// 'lb decap show' report it with the command that mends it. A process of the namespace attaches the program again.
func TestDecapInterfaceMadeAgain(t *testing.T) {
	b := newPairsBed(t)
	const command = "culvert lb decap add ft0 --gue-port 7000 --from 10.200.0.0/16 --vip 192.0.2.1 --local 10.0.0.11"
	says := func(want string, lines ...string) {
		t.Helper()
		for _, line := range lines {
			status := 0
			if strings.HasPrefix(line, "doctor") {
				status = 1
			}
			b.expect(status, want, strings.Fields(line)...)
		}
	}
	b.expect(0, "tunnels end on ft0", strings.Fields(command)[1:]...)
	b.send(1, frame("198.51.100.1", 53))
	b.eventually("  pass     other", "lb decap show")

	b.unmake()
	says("NOT ATTACHED: it does not exist", "status", "lb decap show")
	says(`"unattached":"gone"`, "status -j", "lb decap show -j")
	says("tunnels do not end here any more: the interface does not exist, and no process waits for it", "doctor -i fx0")
	says(command, "status", "lb decap show", "doctor -i fx0")
	b.makeAgain()
	says("NOT ATTACHED: it was deleted and made again", "status", "lb decap show")
	says(`"unattached":"replaced"`, "status -j", "lb decap show -j")
	says("FAIL  ft0   decap-attached", "doctor -i fx0")
	says("the interface was deleted and made again, and no process attaches to it", "doctor -i fx0")
	says(command, "status", "lb decap show", "doctor -i fx0")
	// The command that they name mends it, and the counters stay.
	b.expect(0, "tunnels end on ft0", strings.Fields(command)[1:]...)
	if out := b.expect(0, "  pass     other", "lb", "decap", "show"); strings.Contains(out, "NOT ATTACHED") {
		t.Errorf("attached, and the list says\n%s", out)
	}
	if _, out, _ := culvert(t, "doctor", "-i", "fx0"); strings.Contains(out, "decap-attached") {
		t.Errorf("attached, and doctor says\n%s", out)
	}

	// After 'lb decap del' nothing is reported any more.
	b.unmake()
	b.expect(0, "taken off ft0", "lb", "decap", "del", "ft0")
	b.expect(0, "no tunnels end here", "lb", "decap", "show")
	if out := b.expect(0, "", "status"); strings.Contains(out, "decap on ft0") {
		t.Errorf("taken off, and status says\n%s", out)
	}
	b.makeAgain()

	b.expect(0, "tunnels end on ft0", strings.Fields(command)[1:]...)
	p := runAttached(t, b.file("c.toml", "interfaces = ['fx0']\nmetrics = '127.0.0.1:9443'\n[filter]\n"))
	const metric = `culvert_interface_attached{interface="ft0"}`
	b.metric("127.0.0.1:9443", metric, "1")
	b.unmake()
	p.waitFor(t, "the interface does not exist: tunnels end at it again when it does")
	b.metric("127.0.0.1:9443", metric, "0")
	says("the process attaches when it does", "doctor -i fx0")
	b.makeAgain()
	p.waitFor(t, "the interface was deleted and made again: tunnels end at it again\" interface=ft0")
	b.metric("127.0.0.1:9443", metric, "1")
	if out := b.expect(0, "ft0  native, GUE on port 7000", "lb", "decap", "show"); strings.Contains(out, "NOT ATTACHED") {
		t.Errorf("attached, and the list says\n%s", out)
	}
	// If it is detached by hand, no process attaches it again.
	b.expect(0, "taken off ft0", "lb", "decap", "del", "ft0")
	b.metric("127.0.0.1:9443", metric, "")
	b.expect(0, "no tunnels end here", "lb", "decap", "show")
	p.interrupt(t)
	for text, times := range map[string]int{"tunnels end at it again when it does": 1, "made again: tunnels end": 1} {
		if n := strings.Count(p.errs.String(), text); n != times {
			t.Errorf("the log says %q %d times, want %d", text, n, times)
		}
	}
}
