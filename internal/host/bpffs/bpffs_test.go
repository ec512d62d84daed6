// SPDX-License-Identifier: Apache-2.0

package bpffs

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFindHeld finds the bpffs that was held, once neither that of the mount namespace nor the host's can be reached: the parents of a
// process that 'ip netns exec' has started may have ended.
func TestFindHeld(t *testing.T) {
	const none = "/proc/no-such-process/root"
	if path, ok := find(none, none); ok {
		t.Fatalf("found %s although nothing is held", path)
	}
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, "mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if path, ok := find(none, dir); !ok || path != dir {
		t.Fatalf("found %q, %v", path, ok)
	}
	held := Hold(dir)
	if err := os.Mkdir(filepath.Join(dir, "mark"), 0o700); err != nil {
		t.Fatal(err)
	}
	path, ok := find(none, none)
	if !ok || path != held {
		t.Fatalf("found %q, %v, want %s", path, ok, held)
	}
	if again := Hold(path); again != held {
		t.Errorf("held again at %s, want %s", again, held)
	}
	if _, err := os.Stat(filepath.Join(path, "mark")); err != nil {
		t.Errorf("it is another one: %v", err)
	}
}
