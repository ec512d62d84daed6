// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

const (
	bpffs = "/sys/fs/bpf"
	// initRoot leads into the mount namespace of PID 1. `ip netns exec` hides the host's bpffs
	// behind a fresh /sys; pins made through here are the host's and outlive the command.
	initRoot = "/proc/1/root"
)

// pinRoot returns the directory for all pins, mounting bpffs when nobody has.
func pinRoot() (string, error) {
	if root, ok := findRoot(); ok {
		return root, nil
	}
	if err := mountBPFFS(); err != nil {
		return "", fmt.Errorf("mounting bpffs on %s: %w (mount -t bpf bpf %s)", bpffs, err, bpffs)
	}
	root, ok := findRoot()
	if !ok {
		return "", fmt.Errorf("%s is not a bpffs even after mounting it (mount -t bpf bpf %s)",
			bpffs, bpffs)
	}
	return root, nil
}

// findRoot returns the directory for all pins if a bpffs is there already.
func findRoot() (string, bool) {
	for _, fs := range []string{bpffs, initRoot + bpffs} {
		var st unix.Statfs_t
		if unix.Statfs(fs, &st) == nil && st.Type == unix.BPF_FS_MAGIC {
			return filepath.Join(fs, "culvert"), true
		}
	}
	return "", false
}

// mountBPFFS mounts in the mount namespace of PID 1, where it outlives this process. A thread that
// has changed its mount namespace is of no further use, so it ends with its goroutine.
func mountBPFFS() error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- func() error {
			ns, err := os.Open("/proc/1/ns/mnt")
			if err == nil {
				defer ns.Close()
				if err := unix.Unshare(unix.CLONE_FS); err != nil {
					return err
				}
				if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
					return err
				}
			}
			return unix.Mount("bpf", bpffs, "bpf", 0, "mode=0700")
		}()
	}()
	return <-done
}

// NetNSHere returns the inode of the calling thread's network namespace.
func NetNSHere() (uint32, error) { return netnsInode() }

// netnsInode identifies the network namespace of the calling thread.
func netnsInode() (uint32, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return 0, fmt.Errorf("reading the network namespace: %w", err)
	}
	return uint32(st.Ino), nil
}
