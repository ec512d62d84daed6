// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var allReference = map[string]Router{"as1": Reference, "as2": Reference, "as3": Reference}

// wantOutput runs a command in a namespace and wants texts in its output.
func wantOutput(t *testing.T, l *Lab, ns string, argv []string, texts ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := l.Run(ctx, ns, argv...)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
		return
	}
	for _, text := range texts {
		if !strings.Contains(string(out), text) {
			t.Errorf("%s in %s does not say %q:\n%s", strings.Join(argv, " "), ns, text, out)
		}
	}
}

func TestScion3(t *testing.T) {
	peers := testPeers(t)
	for name, o := range map[string]Options{
		"core":          {Name: testName(t, "core")},
		"segmentSwitch": {Name: testName(t, "sw"), SegmentSwitch: true, IPv6: true, MTU: 9000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // two labs at once
			o.Routers, o.Peers, o.Out = allReference, peers, t.Output()
			l := up(t, "scion3", o)
			loopback := "127.0.0.1"
			if o.IPv6 {
				loopback = "::1"
			}
			host := net18(103, 2, o.IPv6).Addr().String()
			wantOutput(t, l, "as1", []string{"scion", "showpaths", "1-ff00:0:3", "--no-color"},
				"[1-ff00:0:1 102>201 1-ff00:0:2 203>302 1-ff00:0:3]", "alive")
			wantOutput(t, l, "as1", []string{"scion", "ping", "1-ff00:0:3," + loopback, "-c", "2", "--interval", "100ms"},
				"2 packets transmitted, 2 received, 0% packet loss")
			wantOutput(t, l, "as1h", []string{"scion", "ping", "1-ff00:0:3," + host, "-c", "2", "--interval", "100ms"},
				"2 packets transmitted, 2 received, 0% packet loss")
			wantOutput(t, l, "as3", []string{"scion", "traceroute", "1-ff00:0:1," + loopback},
				"IfID=302", "IfID=203", "IfID=201", "IfID=102")
			if err := l.Down(); err != nil {
				t.Fatal(err)
			}
			wantNothingLeft(t, l.Name)
		})
	}
}

// fakeCulvert returns the path of a program that has culvert's command line and runs
// the reference router. With it the tests of this package do not depend on culvert.
func fakeCulvert(t *testing.T, p Peers) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "culvert")
	script := "#!/bin/sh\n[ \"$1 $2 $3\" = 'scion run --config' ] || exit 2\nshift 2\nexec '" + p.Bin + "/router' \"$@\"\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestScion3RestartRouter opens a lab with the default routers, kills culvert in the
// middle, and starts the reference router there.
func TestScion3RestartRouter(t *testing.T) {
	defer func(dir string) { pinDir = dir }(pinDir)
	pinDir = t.TempDir()
	name, peers := testName(t, "rr"), testPeers(t)
	up(t, "scion3", Options{Name: name, Peers: peers, Culvert: fakeCulvert(t, peers), Out: t.Output()})
	l, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	for ns, want := range map[string]Router{"as1": Reference, "as2": Culvert, "as3": Reference} {
		if as, err := l.AS(ns); err != nil || as.Router != want {
			t.Errorf("the router of %s is %s, want %s: %v", ns, as.Router, want, err)
		}
	}
	for inode := range l.inodes() {
		if err := os.Mkdir(filepath.Join(pinDir, strconv.FormatUint(inode, 10)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	before, err := l.RouterPID("as2")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.StartRouter("as2", Reference); err == nil {
		t.Error("a second router was started beside the first")
	}
	if err := l.StopRouter("as2", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := l.RouterPID("as2"); err == nil {
		t.Error("a router that was killed still has a process ID")
	}
	if err := l.WaitPaths(t.Context(), 30*time.Second, nil); err == nil || !strings.Contains(err.Error(), "as2-router") {
		t.Errorf("waiting for paths without the router in the middle: %v", err)
	}
	if pins, err := os.ReadDir(pinDir); err != nil || len(pins) != 5 {
		t.Errorf("stopping culvert left %d of 5 pin directories: %v", len(pins), err)
	}
	if err := l.RestartRouter("as2", Reference); err != nil {
		t.Fatal(err)
	}
	if pins, err := os.ReadDir(pinDir); err != nil || len(pins) != 4 {
		t.Errorf("replacing culvert by the reference router left %d pin directories, want 4: %v", len(pins), err)
	}
	if after, err := l.RouterPID("as2"); err != nil || after == before {
		t.Errorf("the new router is process %d, the old one was %d: %v", after, before, err)
	}
	if err := l.WaitPaths(t.Context(), time.Minute, t.Output()); err != nil {
		t.Error(err)
	}
}

func TestScion3InterruptedUpLeavesNothing(t *testing.T) {
	peers := testPeers(t)
	for i, text := range []string{"keys and certificates", "as2: reference"} {
		t.Run(text, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			name := testName(t, "z"+string(rune('0'+i)))
			out := &cancelAt{text: text, cancel: cancel}
			_, err := Up(ctx, "scion3", Options{Name: name, Routers: allReference, Peers: peers, Out: out})
			if !out.hit || !errors.Is(err, context.Canceled) {
				t.Errorf("Up returned %v, and wrote: %s", err, out.lines.String())
			}
			if err == nil {
				_ = Down(name)
			}
			wantNothingLeft(t, name)
		})
	}
}

// TestScion3FailsWithItsRouter has a router that ends at once. The error of Up has to
// name it, and only logs may be left.
func TestScion3FailsWithItsRouter(t *testing.T) {
	name := testName(t, "b")
	_, err := Up(t.Context(), "scion3", Options{
		Name: name, Peers: testPeers(t), Culvert: "/bin/false", Out: t.Output(),
	})
	if err == nil {
		_ = Down(name)
	}
	if err == nil || !strings.Contains(err.Error(), "as2-router") || strings.Contains(err.Error(), "\n") {
		t.Errorf("Up returned %v", err)
	}
	wantLogsLeft(t, name, err, "as2-router.log")
}
