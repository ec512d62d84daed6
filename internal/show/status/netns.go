// SPDX-License-Identifier: Apache-2.0

package status

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// netnsDir is where ip-netns(8) keeps named network namespaces.
const netnsDir = "/run/netns"

// netnsNames returns the names of the named network namespaces by their inodes. It leaves out what it cannot read, since
// the names are for convenience only.
func netnsNames() map[uint32]string {
	names := make(map[uint32]string)
	entries, err := os.ReadDir(netnsDir)
	if err != nil {
		return names
	}
	for _, e := range entries {
		path := filepath.Join(netnsDir, e.Name())
		var fs unix.Statfs_t
		var st unix.Stat_t
		// While ip-netns(8) makes a namespace, its name is a plain file, whose inode is not that of a namespace.
		if unix.Statfs(path, &fs) == nil && fs.Type == unix.NSFS_MAGIC && unix.Stat(path, &st) == nil {
			names[uint32(st.Ino)] = e.Name()
		}
	}
	return names
}
