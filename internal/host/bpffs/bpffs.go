// SPDX-License-Identifier: Apache-2.0

// Package bpffs finds the BPF file system in which culvert pins the objects that outlive its processes.
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

// Find returns a path to the bpffs for pins: Path, or a path through which Path in the host's mount
// namespace can be reached. The host's bpffs takes precedence over one of this mount namespace, whose
// pins would vanish with the last process in it. Where neither can be reached any more, it is the one that Hold keeps: the
// process through which the host's was reached may have ended. ok is false if there is none. Hold says how long the path is valid.
func Find() (path string, ok bool) { return find(Path, hostRoot()+Path) }

// find is Find with the paths of both.
func find(ofOwn, ofHost string) (path string, ok bool) {
	own, hasOwn := device(ofOwn)
	host, hasHost := device(ofHost)
	switch {
	case hasOwn && (!hasHost || own == host):
		return ofOwn, true
	case hasHost:
		return ofHost, true
	default:
		held.Lock()
		defer held.Unlock()
		return heldPath(), held.dir != nil
	}
}

// held is the bpffs that Hold keeps open.
var held struct {
	sync.Mutex
	dir *os.File
	dev uint64
}

// Hold returns a path to the bpffs at path that stays valid for the rest of this process. A path from
// Find may lead through another process, and is valid only while that process lives.
func Hold(path string) string {
	dev, ok := device(path + "/")
	if path == Path || !ok {
		return path // whoever uses the path gets the error
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
	return heldPath()
}

// heldPath returns a path to what is held, "" for nothing.
func heldPath() string {
	if held.dir == nil {
		return ""
	}
	return fmt.Sprintf("/proc/self/fd/%d", held.dir.Fd())
}

// device returns the device number of the bpffs that is mounted at path. ok is false if there is none.
func device(path string) (dev uint64, ok bool) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Statfs(path, &fs) != nil || fs.Type != unix.BPF_FS_MAGIC || unix.Stat(path, &st) != nil {
		return 0, false
	}
	return st.Dev, true
}

// hostRoot returns a directory through which the root of the host's mount namespace can be reached: that
// of PID 1 or, if this process may not access it, that of the oldest ancestor that it may. It is "" if it
// may not even access its own. `ip netns exec` hides the host's bpffs behind a fresh /sys, and pins made
// there would vanish with the command.
func hostRoot() string {
	root := ""
	for pid := os.Getpid(); pid > 1; pid = parentOf(pid) {
		root = reachable(pid, root)
	}
	return reachable(1, root)
}

// HostProcess returns the directory in /proc of the process whose root hostRoot returns, which is in the host's namespaces,
// or "" if there is none.
func HostProcess() string {
	if root := hostRoot(); root != "" {
		return filepath.Dir(root)
	}
	return ""
}

// reachable returns the root directory of a process, or otherwise if it cannot be accessed.
func reachable(pid int, otherwise string) string {
	root := fmt.Sprintf("/proc/%d/root", pid)
	if _, err := os.Stat(root + "/"); err != nil {
		return otherwise
	}
	return root
}

// parentOf returns the parent of a process, 0 if it has none in this PID namespace.
func parentOf(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name in parentheses may contain spaces and parentheses (proc_pid_stat(5)).
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	return parent
}

// Mount mounts bpffs at Path in the host's mount namespace, where it outlives this process. It changes the mount
// namespace of a thread that then ends with its goroutine, since no other may run on it.
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
