// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Scratch is a directory in memory that is mounted nowhere, so that it ends with this process, however that ends.
type Scratch struct {
	root int
}

// NewScratch makes one. Nothing is left of it when the process ends.
func NewScratch() (*Scratch, error) {
	made, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open a tmpfs for configuration files: %w", err)
	}
	defer unix.Close(made)
	if err := unix.FsconfigSetString(made, "mode", "0700"); err != nil {
		return nil, fmt.Errorf("set the mode of a tmpfs: %w", err)
	}
	if err := unix.FsconfigCreate(made); err != nil {
		return nil, fmt.Errorf("make a tmpfs for configuration files: %w", err)
	}
	root, err := unix.Fsmount(made, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("mount a tmpfs for configuration files: %w", err)
	}
	return &Scratch{root: root}, nil
}

// Path leads to the directory until Close, in this process and in those that it starts.
func (s *Scratch) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.root) }

// Close lets go of the directory. Close of nothing does nothing.
func (s *Scratch) Close() error {
	if s == nil {
		return nil
	}
	return unix.Close(s.root)
}
