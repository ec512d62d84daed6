// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestAttachInterfaces attaches to the interfaces of the file, and to fewer than the file names.
func TestAttachInterfaces(t *testing.T) {
	b := newPairsBed(t)
	path := b.file("c.toml", "interfaces = ['ft0', 'fx0']\n[filter]\n")
	b.expect(0, "culvert attached to ft0, fx0\n", "attach", "-c", path)
	b.expect(0, "taken off fx0, which was not named\nwithout fx0: the file names it, this command does not\n", "attach", "-c", path, "ft0")
	if out := b.expect(0, "culvert attached to ft0, fx0\n", "attach", "-c", path, "fx0", "ft0"); strings.Contains(out, "without") {
		t.Errorf("attach to all of the file's says\n%s", out)
	}
	b.expect(0, "detached", "detach", "--all")
	b.expect(1, "interfaces is missing", "attach", "-c", b.file("c.toml", "[filter]\n"))
}

// TestWorkersWithoutEffect has workers in a file with a filter alone. status and doctor say that they do nothing.
func TestWorkersWithoutEffect(t *testing.T) {
	b := newPairsBed(t)
	path := b.file("c.toml", "interfaces = ['ft0']\n[workers]\ncpus = [0]\n[filter]\n")
	const none = "[workers] has no effect: there is none of [scion], [route] and [lb], whose packets are spread"
	doctor := func(args ...string) string {
		_, out, _ := culvert(t, append([]string{"doctor"}, args...)...)
		return out
	}
	if out := doctor("-c", path); !strings.Contains(out, none) {
		t.Errorf("doctor with the file says\n%s", out)
	}
	b.expect(0, "culvert attached to ft0\n", "attach", "-c", path)
	b.expect(0, "  workers on CPUs 0  no effect: no stage is on whose packets are spread\n", "status")
	if out := doctor(); !strings.Contains(out, none) {
		t.Errorf("doctor says\n%s", out)
	}
	b.expect(0, "attached", "attach", "-c", b.file("c.toml", "interfaces = ['ft0']\n[filter]\n"))
	if out := doctor(); strings.Contains(out, "[workers]") {
		t.Errorf("without workers doctor says\n%s", out)
	}
}
