// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestNotifier has a socket in the place of systemd's.
func TestNotifier(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	n := New()
	n.Reloading()() // during the start: nothing
	n.Extend(30 * time.Second)
	n.Status("edge: route starting")
	n.Status("edge: route starting")
	n.Ready()
	n.Ready()
	n.Watchdog()
	n.Status("edge:\nroute ready")
	done := n.Reloading()
	again := n.Reloading()
	again()
	done()
	done()
	n.Stopping()
	want := []string{"EXTEND_TIMEOUT_USEC=30000000", "STATUS=edge: route starting", "READY=1", "WATCHDOG=1", "STATUS=edge:; route ready",
		"RELOADING=1 MONOTONIC_USEC=[0-9]{3,}", "READY=1", "STOPPING=1"}
	buf := make([]byte, 4096)
	for i, text := range want {
		if err := systemd.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		size, err := systemd.Read(buf)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if got := strings.ReplaceAll(string(buf[:size]), "\n", " "); !regexp.MustCompile("^" + text + "$").MatchString(got) {
			t.Errorf("%d: systemd gets %q, want %q", i, got, text)
		}
	}
	if !n.IsReady() {
		t.Error("not ready")
	}
	t.Setenv("NOTIFY_SOCKET", "")
	New().Ready()
}
