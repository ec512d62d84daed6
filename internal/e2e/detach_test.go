// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"syscall"
	"testing"

	"culvert/internal/lab"
)

// TestDetachServed detaches a router from its interfaces while a process serves it. The process goes on, so nobody else may
// attach that router.
func TestDetachServed(t *testing.T) {
	b := newBetween(t, lab.Options{Name: "det"})
	attach := []string{"attach", "-c", nodeFor(t, b.config), "to-a", "to-b"}
	p := b.serve(t)
	serving := "router " + b.as.RouterID + " is still served by a process, which goes on with its slow path alone"
	for _, step := range []struct{ iface, want string }{
		{"to-a", "detached from to-a\n" + serving + " except on to-b\n"},
		{"to-b", "detached from to-b\n" + serving + " (detached = \"stay\")\n"},
	} {
		if out := culvert(t, b.lab, "rut", "detach", step.iface); out != step.want {
			t.Errorf("detach %s says %q, want %q", step.iface, out, step.want)
		}
		observe(t, b.lab).refuse(t, refusal{name: "attach", args: attach, status: 1, says: b.as.RouterID})
	}
	if !p.running() {
		t.Fatal("the process has ended")
	}
	p.end(syscall.SIGTERM)
	culvert(t, b.lab, "rut", attach...)
	if out := culvert(t, b.lab, "rut", attach[:4]...); !strings.Contains(out, "\ntaken off to-b, which was not named\n") {
		t.Errorf("attach without to-b says %q", out)
	}
	if xdpProgram(t, b.lab, "rut", "to-b") != 0 {
		t.Error("to-b is still attached")
	}
}
