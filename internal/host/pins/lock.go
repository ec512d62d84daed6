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

// LockWait is how long WaitForLock waits.
const LockWait = 30 * time.Second

const lockPause = 20 * time.Millisecond

// ErrGone says that what was to be locked or attached was detached meanwhile.
var ErrGone = errors.New("it is not attached any more")

// WaitForLock calls try until it takes a lock or fails, for up to LockWait. Try returns nil and no error if another process has
// the lock, and so does WaitForLock if that is so all the time.
func WaitForLock(try func() (unlock func(), err error)) (unlock func(), err error) {
	for waited := time.Duration(0); waited < LockWait; waited += lockPause {
		if unlock, err := try(); unlock != nil || err != nil {
			return unlock, err
		}
		time.Sleep(lockPause)
	}
	return nil, nil
}

// TryLock makes the directory path and locks it. It returns nil without an error if another process has locked the directory
// or has just removed it. The error is ErrGone if the parent directory does not exist. To unlock, the caller may remove the
// directory, and closes the file.
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
