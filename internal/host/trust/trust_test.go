// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestDir(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	base := t.TempDir()
	for _, c := range []struct {
		name string
		mode os.FileMode
		uid  int
		want string // "" if it is trusted
	}{
		{"private", 0o700, 0, ""},
		{"readable", 0o755, 0, ""},
		{"group", 0o775, 0, "others than root may write to BASE/group (mode 0775): chmod go-w BASE/group"},
		{"world", 0o777, 0, "others than root may write to BASE/world (mode 0777): chmod go-w BASE/world"},
		{"sticky", 0o777 | fs.ModeSticky, 0, "others than root may write to BASE/sticky (mode 1777): chmod go-w BASE/sticky"},
		{"foreign", 0o700, 65534, "BASE/foreign belongs to user 65534, not to root: chown root BASE/foreign, once it is clear who made it"},
	} {
		path := filepath.Join(base, c.name)
		check(t, os.Mkdir(path, 0o700))
		check(t, os.Chmod(path, c.mode))
		check(t, os.Chown(path, c.uid, 0))
		got := ""
		if err := Dir(path); err != nil {
			got = strings.ReplaceAll(err.Error(), base, "BASE")
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	check(t, os.Symlink("private", filepath.Join(base, "link")))
	var refused *Error
	if err := Dir(filepath.Join(base, "link")); !errors.As(err, &refused) {
		t.Errorf("a symbolic link: %v", err)
	}
	if err := Dir(filepath.Join(base, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing there: %v", err)
	}
}

func TestSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	check(t, os.WriteFile(path, []byte("s3cret\n"), 0o600))
	if b, err := Secret(path); err != nil || string(b) != "s3cret\n" {
		t.Errorf("%q, %v", b, err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o666} {
		check(t, os.Chmod(path, mode))
		want := fmt.Sprintf("others than its owner may use %s (mode %04o): chmod 0600 %[1]s", path, mode)
		if b, err := Secret(path); err == nil || err.Error() != want || b != nil {
			t.Errorf("mode %04o: %q, %v, want %s", mode, b, err, want)
		}
	}
	if _, err := Secret(filepath.Dir(path)); err == nil {
		t.Error("a directory was taken for a secret")
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	check(t, unix.Mkfifo(fifo, 0o600))
	if _, err := Secret(fifo); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a FIFO: %v", err)
	}
	check(t, os.Chmod(path, 0o600))
	check(t, os.WriteFile(path, make([]byte, 64<<10+1), 0o600))
	if _, err := Secret(path); err == nil {
		t.Error("64 KiB and a byte were taken for a secret")
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "culvert", "one.lock")
	lock, err := TakeLock(path)
	check(t, err)
	if _, err := TakeLock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("taken twice: %v", err)
	}
	if pid := LockHolder(path); pid != os.Getpid() {
		t.Errorf("held by %d, want %d", pid, os.Getpid())
	}
	info, err := os.Stat(path)
	check(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	check(t, lock.Release())
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the release: %v", err)
	}
	lock, err = TakeLock(path)
	check(t, err)
	check(t, lock.Release())
	check(t, os.Chmod(filepath.Dir(path), 0o777))
	if _, err := TakeLock(path); err == nil {
		t.Error("a lock was made where anybody may remove it")
	}
}

// TestFlockHolder reads lines of proc_locks(5).
func TestFlockHolder(t *testing.T) {
	file := unix.Stat_t{Dev: unix.Mkdev(0, 0x1a), Ino: 77}
	for _, c := range []struct {
		lines string
		pid   int
	}{
		{"1: FLOCK  ADVISORY  WRITE 123 00:1a:77 0 EOF\n", 123},
		{"1: -> FLOCK  ADVISORY  WRITE 123 00:1a:77 0 EOF\n", 0},
		{"1: POSIX  ADVISORY  WRITE 123 00:1a:77 0 EOF\n", 0},
		{"1: FLOCK  ADVISORY  READ 123 00:1a:77 0 EOF\n", 0},
		{"1: FLOCK  ADVISORY  WRITE 123 00:1b:77 0 EOF\n", 0},
		{"1: FLOCK  ADVISORY  WRITE 123 00:1a:78 0 EOF\n", 0},
		{"1: FLOCK  ADVISORY  WRITE 0 00:1a:77 0 EOF\n", 0},
		{"", 0},
	} {
		if pid := flockHolder(strings.NewReader(c.lines), &file); pid != c.pid {
			t.Errorf("%q: process %d, want %d", c.lines, pid, c.pid)
		}
	}
}
