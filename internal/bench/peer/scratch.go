// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Scratch is a directory in memory without a mount point. The kernel removes it when this process ends, however it ends.
type Scratch struct {
	root int
}

// NewScratch makes an empty directory that only root can enter.
func NewScratch() (*Scratch, error) {
	fsContext, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open a tmpfs for configuration files: %w", err)
	}
	defer unix.Close(fsContext)
	if err := unix.FsconfigSetString(fsContext, "mode", "0700"); err != nil {
		return nil, fmt.Errorf("set the mode of a tmpfs: %w", err)
	}
	if err := unix.FsconfigCreate(fsContext); err != nil {
		return nil, fmt.Errorf("make a tmpfs for configuration files: %w", err)
	}
	root, err := unix.Fsmount(fsContext, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("mount a tmpfs for configuration files: %w", err)
	}
	return &Scratch{root: root}, nil
}

// Path is the path of the directory until Close. It is valid in this process and in those that it starts.
func (s *Scratch) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.root) }

// Close removes the directory. Closing nil does nothing.
func (s *Scratch) Close() error {
	if s == nil {
		return nil
	}
	return unix.Close(s.root)
}
