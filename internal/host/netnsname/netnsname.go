// SPDX-License-Identifier: Apache-2.0

// Package netnsname knows the names that ip-netns(8) gives to network namespaces.
package netnsname

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// dir is where ip-netns(8) keeps named network namespaces.
const dir = "/run/netns"

// All returns the names of the named network namespaces by their inodes. It leaves out what it cannot read, since
// the names are for convenience only.
func All() map[uint32]string {
	names := make(map[uint32]string)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return names
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		var fs unix.Statfs_t
		var st unix.Stat_t
		// While ip-netns(8) makes a namespace, its name is a plain file, whose inode is not that of a namespace.
		if unix.Statfs(path, &fs) == nil && fs.Type == unix.NSFS_MAGIC && unix.Stat(path, &st) == nil {
			names[uint32(st.Ino)] = e.Name()
		}
	}
	return names
}
