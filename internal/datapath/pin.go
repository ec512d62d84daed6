// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"

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

// findRoot returns the directory for all pins if a bpffs is there already. The host's goes before
// one of this mount namespace: pins in that would be gone with the last process in it.
func findRoot() (string, bool) {
	own, hasOwn := bpffsDevice(bpffs)
	atHost := hostRoot() + bpffs
	host, hasHost := bpffsDevice(atHost)
	switch {
	case hasOwn && (!hasHost || own == host):
		return filepath.Join(bpffs, "culvert"), true
	case hasHost:
		return filepath.Join(heldOpen(atHost, host), "culvert"), true
	default:
		return "", false
	}
}

// bpffsDevice tells whether a bpffs is mounted at path, and which one.
func bpffsDevice(path string) (dev uint64, ok bool) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Statfs(path, &fs) != nil || fs.Type != unix.BPF_FS_MAGIC || unix.Stat(path, &st) != nil {
		return 0, false
	}
	return st.Dev, true
}

// hostRoot leads into the host's mount namespace: that of PID 1 or, where PID 1 is out of reach, of
// the oldest ancestor that is not. `ip netns exec` hides the host's bpffs behind a fresh /sys; what
// is done through here is done to the host's and outlives the command.
func hostRoot() string {
	root := ""
	for pid := os.Getpid(); pid > 1; pid = parentOf(pid) {
		root = reachable(pid, root)
	}
	return reachable(1, root)
}

func reachable(pid int, otherwise string) string {
	root := fmt.Sprintf("/proc/%d/root", pid)
	if _, err := os.Stat(root + "/"); err != nil {
		return otherwise
	}
	return root
}

// parentOf returns 0 when there is no parent in this PID namespace.
func parentOf(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name in parentheses may hold anything (proc_pid_stat(5)).
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	return parent
}

// held is the bpffs that heldOpen keeps.
var held struct {
	sync.Mutex
	dir *os.File
	dev uint64
}

// heldOpen keeps a bpffs of another mount namespace open and returns a way to it that does not end
// with the process through which it was found.
func heldOpen(path string, dev uint64) string {
	held.Lock()
	defer held.Unlock()
	if held.dir == nil || held.dev != dev {
		dir, err := os.Open(path)
		if err != nil {
			return path // what is done with it will say what is wrong
		}
		held.dir, held.dev = dir, dev
	}
	return fmt.Sprintf("/proc/self/fd/%d", held.dir.Fd())
}

// mountBPFFS mounts in the host's mount namespace, where it outlives this process. A thread that
// has changed its mount namespace is of no further use, so it ends with its goroutine.
func mountBPFFS() error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- func() error {
			ns, err := os.Open(filepath.Join(filepath.Dir(hostRoot()), "ns/mnt"))
			if err != nil {
				return fmt.Errorf("entering the host's mount namespace: %w", err)
			}
			defer ns.Close()
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return err
			}
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
				return err
			}
			return unix.Mount("bpf", bpffs, "bpf", 0, "mode=0700")
		}()
	}()
	return <-done
}
