// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
)

// LockWait is how long a change waits for another one.
const LockWait = 30 * time.Second

const lockPause = 20 * time.Millisecond

// ErrGone is the error of what was detached meanwhile.
var ErrGone = errors.New("it is not attached any more")

// WaitForLock tries to take a lock for as long as LockWait. Unlock is nil, without an error, if somebody else has had it all the
// time; try says the same of a moment.
func WaitForLock(try func() (unlock func(), err error)) (unlock func(), err error) {
	for waited := time.Duration(0); waited < LockWait; waited += lockPause {
		if unlock, err := try(); unlock != nil || err != nil {
			return unlock, err
		}
		time.Sleep(lockPause)
	}
	return nil, nil
}

// TryLock makes a directory for a lock, and returns it locked, or nil if somebody else has locked or removed it. The error
// is ErrGone if the directory that it would be in is not there. It may be removed before it is closed.
func TryLock(path string) (*os.File, error) {
	err := os.Mkdir(path, 0o700)
	switch {
	case errors.Is(err, os.ErrPermission):
		return nil, bpfobj.PermissionError("making " + path)
	case errors.Is(err, os.ErrNotExist):
		return nil, ErrGone
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
