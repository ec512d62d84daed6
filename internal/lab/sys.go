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

// ownSys gives the calling thread a mount namespace whose /sys shows the devices of the thread's network namespace: sysfs
// shows those of the one that it was mounted in. What is mounted below /sys, bpffs with culvert's pins among it, is there
// as before. The thread is to run nothing afterwards but the command.
func ownSys() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making a mount namespace: %w", err)
	}
	// What is mounted on the host later is seen, and what is mounted here stays here.
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
		// Some have no directory to be mounted on any more, and are not missed.
		if fd, ok := kept[path]; ok {
			_ = unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), path, "", unix.MS_BIND, "")
		}
	}
	return nil
}

// mountsBelow lists where something is mounted below a directory, the outer ones first (proc_pid_mountinfo(5)).
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
