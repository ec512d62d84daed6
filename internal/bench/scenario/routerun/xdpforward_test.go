// SPDX-License-Identifier: Apache-2.0

package routerun

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"culvert/internal/testbed"
)

// The program runs in the router's namespace with a private /sys/fs/bpf. If it fails, the error has its last line. Nothing is
// left behind.
func TestXDPForward(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	d := &xdpForward{program: "/nowhere/xdp-forward"}
	if err := d.Available(); err == nil || !strings.Contains(err.Error(), "package xdp-tools") {
		t.Errorf("error %v does not say where to get it", err)
	}
	b, err := newBed(t.Context(), fewRoutes())
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	d.program = filepath.Join(t.TempDir(), "xdp-forward")
	script := `#!/bin/sh
case $1 in
load) mkdir /sys/fs/bpf/cvtest && test "$*" = "load -m native cvin cvout" && test -e /proc/sys/net/ipv4/conf/cvin ;;
*) rmdir /sys/fs/bpf/cvtest || { echo some text; echo gone already; exit 1; } ;;
esac
`
	if err := os.WriteFile(d.program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.Prepare(t.Context(), b.path); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Release(); err != nil {
			t.Error(err)
		}
	}()
	for range 2 {
		if err := d.Attach(t.Context(), b.path); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat("/sys/fs/bpf/cvtest"); err == nil {
			t.Error("pins are seen from outside")
		}
		if err := d.Detach(); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.run("unload"); err == nil || !strings.HasSuffix(err.Error(), "gone already") {
		t.Errorf("error %v does not have the program's last line", err)
	}
}
