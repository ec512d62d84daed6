// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"culvert/internal/host/bpffs"
	"culvert/internal/host/trust"
)

// bpffsRoots returns the bpffs that are searched for pins: that of this mount namespace, and that of culvert's pins if it is
// another one. It is a variable for tests.
var bpffsRoots = func() []string {
	roots := []string{bpffs.Path}
	if path, ok := bpffs.Find(); ok && path != bpffs.Path {
		roots = append(roots, path)
	}
	return roots
}

// pinFS holds the facts of the bpffs that has the pins.
type pinFS struct {
	// path is the path of the bpffs, "" if there is none. It begins with /proc/PID/root if the bpffs is hidden in this mount
	// namespace.
	path     string
	readOnly bool
	// supported tells whether the kernel has bpffs.
	supported bool
	// mountable tells whether culvert has the privilege to mount one.
	mountable bool
	// untrusted says which directory others than root can change, nil if there is none.
	untrusted *trust.Error
	// inside tells whether that directory is below culvert's own.
	inside bool
}

func readPinFS(capabilities uint64) pinFS {
	p := pinFS{supported: kernelHasFS("bpf"), mountable: capabilities&(1<<unix.CAP_SYS_ADMIN) != 0}
	var st unix.Statfs_t
	if path, ok := bpffs.Find(); ok && unix.Statfs(path, &st) == nil {
		p.path = path
		p.readOnly = st.Flags&unix.ST_RDONLY != 0
		p.untrusted, p.inside = untrustedPins(path)
	}
	return p
}

const pinDir = "culvert"

// untrustedPins looks for a directory of pins that others than root can change: the bpffs at path, culvert's directory there,
// and those below it, which hold the pins of all network namespaces. inside tells whether the directory is below culvert's.
func untrustedPins(path string) (found *trust.Error, inside bool) {
	if errors.As(trust.DirAs(path+"/", bpffs.Path), &found) {
		return found, false
	}
	root := filepath.Join(path, pinDir)
	if errors.As(trust.DirAs(root, filepath.Join(bpffs.Path, pinDir)), &found) {
		return found, false
	}
	_ = filepath.WalkDir(root, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // it was removed, or this process may not read it, which checkPrivileges reports
		}
		// A symbolic link in the place of a directory leads to pins of whoever made the link.
		if at != root && (e.IsDir() || e.Type()&fs.ModeSymlink != 0) {
			below, _ := filepath.Rel(path, at)
			if errors.As(trust.DirAs(at, filepath.Join(bpffs.Path, below)), &found) {
				return fs.SkipAll
			}
		}
		return nil
	})
	return found, found != nil
}

// kernelHasFS tells whether the kernel lists a file system in /proc/filesystems.
func kernelHasFS(name string) bool {
	f, err := os.Open("/proc/filesystems")
	if err != nil {
		return false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 0 && fields[len(fields)-1] == name {
			return true
		}
	}
	return false
}

func checkPinFS(p pinFS) Finding {
	f := Finding{Check: "bpffs"}
	switch {
	case p.untrusted != nil && p.inside:
		f.Status = Fail
		f.Finding = p.untrusted.Finding + ": culvert trusts no pin in it and refuses to work with those"
		f.Command = p.untrusted.Command
	case p.untrusted != nil:
		f.Status = Fail
		f.Finding = p.untrusted.Finding + ": culvert trusts no pin and does not start"
		f.Command = p.untrusted.Command
	case p.path != "" && p.readOnly:
		f.Status = Fail
		f.Finding = "mounted read-only at " + p.path + ": nothing can be pinned"
		f.Command = "mount -o remount,rw " + bpffs.Path
		if p.path != bpffs.Path {
			f.Command = "on the host: " + f.Command
		}
	case p.path == bpffs.Path:
		f.Finding = "mounted at " + bpffs.Path
	case p.path != "":
		f.Finding = "hidden here, as by 'ip netns exec'; culvert reaches the host's through " +
			strings.TrimSuffix(p.path, bpffs.Path)
	case p.supported && p.mountable:
		f.Finding = "not mounted yet; culvert mounts it at " + bpffs.Path + " when it attaches"
	case p.supported:
		f.Status = Fail
		f.Finding = "not mounted, and without CAP_SYS_ADMIN culvert cannot mount it"
		f.Command = "sudo mount -t bpf -o mode=0700 bpf " + bpffs.Path
	default:
		f.Status = Fail
		f.Finding = "this kernel has none (CONFIG_BPF_SYSCALL): programs cannot be pinned"
	}
	return f
}
