// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"io"
	"path"
	"strings"
)

// archive writes a cpio archive in "newc" format, which the kernel unpacks as its initial root file system
// (Documentation/driver-api/early-userspace/buffer-format.rst). All files belong to root and have modification time 0,
// so that the same contents always give the same archive.
type archive struct {
	w     io.Writer
	inode int
	dirs  map[string]bool
	err   error
}

const (
	typeDir  = 0o040000
	typeFile = 0o100000
)

func newArchive(w io.Writer) *archive {
	return &archive{w: w, dirs: map[string]bool{"": true, ".": true}}
}

// file adds a file, and the directories above it. perm has the nine permission bits.
func (a *archive) file(name string, perm uint32, data []byte) {
	name = strings.TrimPrefix(path.Clean(name), "/")
	a.dir(path.Dir(name))
	a.entry(name, typeFile|perm, data)
}

// dir adds a directory, and those above it.
func (a *archive) dir(name string) {
	name = strings.TrimPrefix(path.Clean(name), "/")
	if a.dirs[name] {
		return
	}
	a.dir(path.Dir(name))
	a.dirs[name] = true
	a.entry(name, typeDir|0o755, nil)
}

// close writes the trailer and returns the first error of all writes.
func (a *archive) close() error {
	a.entry("TRAILER!!!", 0, nil)
	return a.err
}

// entry writes a header of thirteen hexadecimal numbers and the name, padded to four bytes, and the data, padded likewise.
func (a *archive) entry(name string, mode uint32, data []byte) {
	a.inode++
	links := 1
	if mode&typeDir != 0 {
		links = 2
	}
	// Magic, inode, mode, user, group, links, time, size, device twice, special device twice, name with its NUL,
	// checksum.
	header := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", a.inode, mode, 0, 0, links, 0,
		len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.write([]byte(header + name + "\x00"))
	a.pad(len(header) + len(name) + 1)
	a.write(data)
	a.pad(len(data))
}

func (a *archive) pad(written int) {
	a.write(make([]byte, -written&3))
}

func (a *archive) write(b []byte) {
	if a.err == nil {
		_, a.err = a.w.Write(b)
	}
}
