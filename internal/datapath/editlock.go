// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
)

// How long a change waits for another one.
const (
	editLockWait  = 30 * time.Second
	editLockPause = 20 * time.Millisecond
)

// lockEdits lets nobody else change filter, load balancer or interfaces of the instance in dir. The lock is on the
// filter's directory: the instance's own is held by the process that serves it.
func lockEdits(dir string) (unlock func(), err error) {
	for waited := time.Duration(0); waited < editLockWait; waited += editLockPause {
		if unlock, err := tryEdits(dir); unlock != nil || err != nil {
			return unlock, err
		}
		time.Sleep(editLockPause)
	}
	return nil, fmt.Errorf("another command has been changing %s for %v: try again when it has ended", pinnedName(filepath.Base(dir)), editLockWait)
}

// tryEdits is lockEdits that does not wait: unlock is nil if somebody else has the lock.
func tryEdits(dir string) (unlock func(), err error) {
	path := filepath.Join(dir, filterDir)
	f, err := tryLockEdits(path)
	if f == nil || err != nil {
		return nil, err
	}
	return func() {
		_ = os.Remove(path) // if there is nothing in it
		f.Close()
	}, nil
}

// lockEdits is lockEdits for the instance, which may hold the lock already.
func (i *Instance) lockEdits() (unlock func(), err error) {
	if i.editing {
		return func() {}, nil
	}
	return lockEdits(i.dir)
}

// ErrGone is the error of an instance, or an interface, that was detached meanwhile.
var ErrGone = errors.New("it is not attached any more")

// tryLockEdits returns the directory, locked, or nil if somebody else has locked or removed it.
func tryLockEdits(path string) (*os.File, error) {
	err := os.Mkdir(path, 0o700)
	switch {
	case errors.Is(err, os.ErrPermission):
		return nil, bpfobj.PermissionError("making " + path)
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("router %s: %w", pinnedName(filepath.Base(filepath.Dir(path))), ErrGone)
	case err != nil && !errors.Is(err, os.ErrExist):
		return nil, fmt.Errorf("making %s: %w", path, err)
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	locked, err := f.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Stat(path); err == nil && os.SameFile(locked, there) {
			return f, nil
		}
	}
	f.Close()
	return nil, nil
}
