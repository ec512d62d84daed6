// SPDX-License-Identifier: Apache-2.0

package runstate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"culvert/internal/host/trust"
)

// names matches the names of files, and the temporary names under which they are written.
var names = regexp.MustCompile(`^[a-z]+-[0-9]+-.*\.json(\.[0-9]+)?$`)

// lockDir locks /run/culvert. So Sweep cannot run while a file has a name but no lock yet, or a lock but no name. The lock
// is held for moments only.
func lockDir() (unlock func(), err error) {
	dir, err := os.Open(trust.RunDir)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(dir.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("locking %s: %w", trust.RunDir, err)
	}
	return func() { dir.Close() }, nil
}

// Sweep removes the files of killed processes.
func Sweep() error {
	if err := trust.Dir(trust.RunDir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("removing what killed processes have left: %w", err)
	}
	unlock, err := lockDir()
	if err != nil {
		return fmt.Errorf("removing what killed processes have left: %w", err)
	}
	defer unlock()
	entries, err := os.ReadDir(trust.RunDir)
	if err != nil {
		return fmt.Errorf("removing what killed processes have left: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if e.Type().IsRegular() && names.MatchString(e.Name()) {
			errs = append(errs, sweep(filepath.Join(trust.RunDir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// sweep removes a file whose writer no longer runs.
func sweep(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing what a killed process has left: %w", err)
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil || !same(f, path) {
		return nil
	}
	return os.Remove(path)
}
