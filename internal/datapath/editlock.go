// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"culvert/internal/host/pins"
)

// editsDir is the directory whose lock is the edit lock. The lock of the instance's own directory is held by the process that
// serves it.
const editsDir = "edits"

// lockEdits takes the edit lock of the instance in dir. It waits for up to pins.LockWait.
func lockEdits(dir string) (unlock func(), err error) {
	unlock, err = pins.WaitForLock(func() (func(), error) { return tryEdits(dir) })
	if err == nil && unlock == nil {
		err = fmt.Errorf("another command has been changing %s for %v: try again when it has ended", pins.Unescape(filepath.Base(dir)), pins.LockWait)
	}
	return unlock, err
}

// tryEdits is lockEdits without waiting: unlock is nil if another process has the lock.
func tryEdits(dir string) (unlock func(), err error) {
	path := filepath.Join(dir, editsDir)
	f, err := pins.TryLock(path)
	if errors.Is(err, pins.ErrGone) {
		return nil, fmt.Errorf("data plane %s: %w", pins.Unescape(filepath.Base(dir)), err)
	}
	if f == nil || err != nil {
		return nil, err
	}
	return func() {
		_ = os.Remove(path)
		f.Close()
	}, nil
}

// lockEdits takes the edit lock of the instance, unless the caller holds it.
func (i *Instance) lockEdits() (unlock func(), err error) {
	if i.editing {
		return func() {}, nil
	}
	return lockEdits(i.dir)
}
