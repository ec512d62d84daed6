// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"culvert/internal/host/trust"
)

const netnsDir = "/run/netns"

// pinDir has culvert's pins, in a directory for each network namespace that is named
// by the namespace's inode number. It is a variable for tests.
var pinDir = "/sys/fs/bpf/culvert"

func netnsName(lab, ns string) string { return "cv-" + lab + "-" + ns }
func netnsPath(name string) string    { return filepath.Join(netnsDir, name) }

// onThread runs f on an OS thread of its own, which afterwards returns to the
// network namespace it came from. A thread that cannot return stays locked, so that
// the runtime ends it with the goroutine.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errors.New("the function did not return")
		defer func() { done <- err }()
		runtime.LockOSThread()
		home, herr := netns.Get()
		if herr != nil {
			err = fmt.Errorf("open this thread's network namespace: %w", herr)
			return
		}
		defer home.Close()
		defer func() {
			if netns.Set(home) == nil {
				runtime.UnlockOSThread()
			}
		}()
		err = f()
	}()
	return <-done
}

// Do runs f on a thread that is in a namespace. Only the network namespace changes,
// mounts stay visible. A process that f starts is in the namespace, a goroutine that
// f starts is not.
func (l *Lab) Do(ns string, f func() error) error {
	n, err := l.Namespace(ns)
	if err != nil {
		return err
	}
	return onThread(func() error {
		if err := enter(n.NetNS); err != nil {
			return err
		}
		return f()
	})
}

// enter moves the calling thread, which must be locked, into a named namespace.
func enter(name string) error {
	h, err := netns.GetFromName(name)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", name, err)
	}
	defer h.Close()
	if err := netns.Set(h); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", name, err)
	}
	return nil
}

// createNamespace makes a named namespace that forwards nothing, and sets its loopback up.
func createNamespace(name string) error {
	if err := shareNetnsDir(); err != nil {
		return err
	}
	err := onThread(func() error {
		h, err := netns.NewNamed(name)
		if err != nil {
			return err
		}
		defer h.Close()
		// It would otherwise be as that of the host, which forwards if it has containers (devconf_inherit_init_net in the kernel's sysctl/net).
		return join(loopbackUp(), writeSysctl("ipv4/ip_forward", "0"))
	})
	if err != nil {
		return fmt.Errorf("make network namespace %s: %w", name, err)
	}
	return nil
}

// shareNetnsDir makes /run/netns a shared mount, as ip-netns(8) does before it adds
// its first namespace. If that command did it later, it would cover the mounts of
// the lab, and they could not be removed.
func shareNetnsDir() error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", netnsDir, err)
	}
	d, err := os.Open(netnsDir)
	if err != nil {
		return fmt.Errorf("open %s: %w", netnsDir, err)
	}
	defer d.Close()
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", netnsDir, err)
	}
	err = unix.Mount("", netnsDir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) {
		// Not a mount point yet.
		if err = unix.Mount(netnsDir, netnsDir, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = unix.Mount("", netnsDir, "none", unix.MS_SHARED|unix.MS_REC, "")
		}
	}
	if err != nil {
		return fmt.Errorf("make %s a shared mount: %w", netnsDir, err)
	}
	return nil
}

// deleteNamespace removes a named namespace. It returns nil if there is none, or if
// one was made only in part.
func deleteNamespace(name string) error {
	err := netns.DeleteNamed(name)
	if errors.Is(err, unix.EINVAL) {
		err = os.Remove(netnsPath(name))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove network namespace %s: %w", name, err)
	}
	return nil
}

// inodes returns the names of the lab's namespaces by inode number, by which the
// kernel and culvert's pins identify them.
func (l *Lab) inodes() map[uint64]string {
	found := make(map[uint64]string)
	for _, ns := range l.Namespaces {
		h, err := netns.GetFromName(ns.NetNS)
		if err != nil {
			continue
		}
		var fsys unix.Statfs_t
		var st unix.Stat_t
		// A namespace that was made only in part is a plain file, whose inode is
		// not that of a namespace.
		if unix.Fstatfs(int(h), &fsys) == nil && fsys.Type == unix.NSFS_MAGIC && unix.Fstat(int(h), &st) == nil {
			found[st.Ino] = ns.Name
		}
		h.Close()
	}
	return found
}

// removePins removes culvert's pins of a namespace. The kernel detaches its XDP
// programs with the last reference to their links.
func removePins(inode uint64) error {
	if err := os.RemoveAll(filepath.Join(pinDir, strconv.FormatUint(inode, 10))); err != nil {
		return fmt.Errorf("remove culvert's pins: %w", err)
	}
	return nil
}

// runFiles returns the files in culvert's run directory about a namespace: locks, and the state of processes. A process that
// is killed leaves them.
func runFiles(inode uint64) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(trust.RunDir, fmt.Sprintf("*-%d-*", inode)))
	if err != nil {
		return nil, fmt.Errorf("list the files of culvert's processes: %w", err)
	}
	return files, nil
}

// removeRunFiles removes the files about a namespace in which no process runs.
func removeRunFiles(inode uint64) error {
	files, err := runFiles(inode)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range files {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove what a culvert process has left: %w", err))
		}
	}
	return join(errs...)
}
