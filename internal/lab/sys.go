// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mountOwnSys gives the calling thread a mount namespace with a /sys of its network namespace: sysfs shows the devices of the
// network namespace in which it was mounted. What was mounted below /sys, such as bpffs with culvert's pins, stays there.
// Afterwards the thread must do nothing but run the command.
func mountOwnSys() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making a mount namespace: %w", err)
	}
	// Later mounts of the host appear here. Mounts made here do not appear on the host.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keeping mounts apart from the host's: %w", err)
	}
	below, err := mountsBelow("/sys/")
	if err != nil {
		return err
	}
	kept := make(map[string]int)
	for _, path := range below {
		if fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
			kept[path] = fd
			defer unix.Close(fd)
		}
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mounting /sys: %w", err)
	}
	for _, path := range below {
		// Some have no directory in the new sysfs. Commands in a lab do not need them.
		if fd, ok := kept[path]; ok {
			_ = unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), path, "", unix.MS_BIND, "")
		}
	}
	return nil
}

// mountsBelow returns the mount points below a directory, outer ones first (proc_pid_mountinfo(5)).
func mountsBelow(dir string) (paths []string, err error) {
	f, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("listing mounts: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && strings.HasPrefix(fields[4], dir) {
			paths = append(paths, fields[4])
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), lines.Err()
}
