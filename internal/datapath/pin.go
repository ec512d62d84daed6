// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

const bpffs = "/sys/fs/bpf"

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

// findRoot returns the directory for all pins if a bpffs is there already, here or where this process
// comes from: `ip netns exec` hides the host's bpffs behind a fresh /sys. Pins made through there
// are the host's and outlive the command.
func findRoot() (string, bool) {
	roots := []string{""}
	for _, pid := range ancestors() {
		roots = append(roots, fmt.Sprintf("/proc/%d/root", pid))
	}
	for _, root := range roots {
		var st unix.Statfs_t
		if unix.Statfs(root+bpffs, &st) == nil && st.Type == unix.BPF_FS_MAGIC {
			return filepath.Join(root+bpffs, "culvert"), true
		}
	}
	return "", false
}

// mountBPFFS mounts in the mount namespace of the first ancestor that lets us, where it outlives this
// process. A thread that has changed its mount namespace is of no further use, so it ends with its
// goroutine.
func mountBPFFS() error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- func() error {
			if err := enterMounts(ancestors()); err != nil {
				return err
			}
			return unix.Mount("bpf", bpffs, "bpf", 0, "mode=0700")
		}()
	}()
	return <-done
}

// enterMounts moves the calling thread into the mount namespace of the first of the processes that
// may be looked into. It stays where it is if there is none.
func enterMounts(pids []int) error {
	for _, pid := range pids {
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		if err != nil {
			continue
		}
		defer ns.Close()
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		return unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS)
	}
	return nil
}

// ancestors lists the processes that this one descends from, PID 1 first: what is mounted there lives
// longest. PID 1 alone is not enough, as it may not let anybody look into it.
func ancestors() []int {
	var pids []int
	for pid := os.Getppid(); pid > 1; pid = parentOf(pid) {
		pids = append(pids, pid)
	}
	pids = append(pids, 1)
	slices.Reverse(pids)
	return pids
}

// parentOf reads field 4 of proc_pid_stat(5); 0 for a process that has gone.
func parentOf(pid int) (parent int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field is the command in parentheses and may hold anything.
	var state string
	if _, err := fmt.Sscan(string(b[bytes.LastIndexByte(b, ')')+1:]), &state, &parent); err != nil {
		return 0
	}
	return parent
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
