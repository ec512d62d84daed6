// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// RunDir is the directory of locks and of files with the state of processes. Like /run it belongs to root.
const RunDir = "/run/culvert"

// ErrLocked is the error of a lock that another process holds.
var ErrLocked = errors.New("another process holds it")

// Lock is a file that is locked by flock(2). The kernel drops the lock when the process ends, so no lock is ever stale.
type Lock struct {
	file *os.File
	path string
}

// MakeDir makes a directory unless it exists, and returns the error of Dir for it.
func MakeDir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return asRoot(fmt.Errorf("making a directory of root's: %w", err))
	}
	return Dir(dir)
}

// TakeLock makes the file at path and locks it. The error matches ErrLocked if another process holds the lock. TakeLock
// makes the file's directory unless it exists, and checks it with Dir.
func TakeLock(path string) (*Lock, error) {
	if err := MakeDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, asRoot(fmt.Errorf("opening the lock: %w", err))
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				err = ErrLocked
			}
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if sameFile(f, path) {
			return &Lock{file: f, path: path}, nil
		}
		f.Close() // the last holder has removed this file meanwhile
	}
}

// Release releases the lock and removes its file.
func (l *Lock) Release() error {
	err := os.Remove(l.path) // after Close, it could be the next holder's file
	return errors.Join(err, l.file.Close())
}

// sameFile reports whether path is the name of f.
func sameFile(f *os.File, path string) bool {
	locked, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(locked, there)
}

// LockHolder returns the PID of the process that holds a lock on the file or directory at path. It is 0 if there is none, or
// if the process is in a PID namespace that cannot be seen from here.
func LockHolder(path string) int {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	f, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer f.Close()
	return flockHolder(f, &st)
}

// HolderName says who holds a lock on path: "process 7", or "another process" if it cannot be seen from here.
func HolderName(path string) string {
	if pid := LockHolder(path); pid != 0 {
		return fmt.Sprintf("process %d", pid)
	}
	return "another process"
}

// flockHolder finds the holder of a flock(2) lock in the text of /proc/locks (proc_locks(5)). Its fields are
// number, kind, mode, access, PID, device and inode, and the range.
func flockHolder(locks io.Reader, file *unix.Stat_t) int {
	id := fmt.Sprintf("%02x:%02x:%d", unix.Major(file.Dev), unix.Minor(file.Dev), file.Ino)
	s := bufio.NewScanner(locks)
	for s.Scan() {
		f := strings.Fields(s.Text())
		// A process that waits for a lock has an arrow in place of the kind.
		if len(f) < 6 || f[1] != "FLOCK" || f[3] != "WRITE" || f[5] != id {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}
