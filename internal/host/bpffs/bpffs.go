// SPDX-License-Identifier: Apache-2.0

// Package bpffs finds the BPF file system in which culvert pins what outlives its processes.
package bpffs

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

// Path is where bpffs is mounted by convention.
const Path = "/sys/fs/bpf"

// Find returns a way to the bpffs for the pins: Path, or what it is in the host's mount namespace.
// The host's goes before one of this mount namespace: pins in that would be gone with the last
// process in it. The result is false when there is none, and see Hold for how long it is good.
func Find() (string, bool) {
	own, hasOwn := device(Path)
	atHost := hostRoot() + Path
	host, hasHost := device(atHost)
	switch {
	case hasOwn && (!hasHost || own == host):
		return Path, true
	case hasHost:
		return atHost, true
	default:
		return "", false
	}
}

// held is the bpffs that Hold keeps.
var held struct {
	sync.Mutex
	dir *os.File
	dev uint64
}

// Hold returns a way to the bpffs found at path that does not end with the process through which
// it was found. It is kept open for the rest of this process.
func Hold(path string) string {
	dev, ok := device(path)
	if path == Path || !ok {
		return path // what is done with it will say what is wrong
	}
	held.Lock()
	defer held.Unlock()
	if held.dir == nil || held.dev != dev {
		dir, err := os.Open(path)
		if err != nil {
			return path
		}
		held.dir, held.dev = dir, dev
	}
	return fmt.Sprintf("/proc/self/fd/%d", held.dir.Fd())
}

// device tells whether a bpffs is mounted at path, and which one.
func device(path string) (dev uint64, ok bool) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Statfs(path, &fs) != nil || fs.Type != unix.BPF_FS_MAGIC || unix.Stat(path, &st) != nil {
		return 0, false
	}
	return st.Dev, true
}

// hostRoot leads into the host's mount namespace: that of PID 1 or, where PID 1 is out of reach, of
// the oldest ancestor that is not. It is "" when not even
// our own is in reach. `ip netns exec` hides the host's bpffs behind a fresh /sys; what
// is done through here is done to the host's and outlives the command.
func hostRoot() string {
	root := ""
	for pid := os.Getpid(); pid > 1; pid = parentOf(pid) {
		root = reachable(pid, root)
	}
	return reachable(1, root)
}

// HostProcess is the directory in /proc of a process that is in the host's namespaces, as hostRoot finds it; "" if there is none.
func HostProcess() string {
	if root := hostRoot(); root != "" {
		return filepath.Dir(root)
	}
	return ""
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

// Mount mounts bpffs at Path in the host's mount namespace, where it outlives this process. A thread that
// has changed its mount namespace is of no further use, so it ends with its goroutine.
func Mount() error {
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
			return unix.Mount("bpf", Path, "bpf", 0, "mode=0700")
		}()
	}()
	return <-done
}
