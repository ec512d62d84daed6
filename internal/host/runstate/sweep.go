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

// names are those of files that path gives, and those that they are written under.
var names = regexp.MustCompile(`^[a-z]+-[0-9]+-.*\.json(\.[0-9]+)?$`)

// lockDir keeps Sweep from a file that has its name and no lock yet, or has a lock and no name. It is held for moments.
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

// Sweep removes what processes have left that were killed.
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

// sweep removes a file whose writer does not live.
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
