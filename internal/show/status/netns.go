// SPDX-License-Identifier: Apache-2.0

package status

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// netnsDir is where ip-netns(8) keeps named network namespaces.
const netnsDir = "/run/netns"

// netnsNames maps the inodes of the named network namespaces to their names. A name that cannot be
// read is left out: names are for the reader's convenience.
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
		// One that is only half made is a plain file, whose inode means nothing.
		if unix.Statfs(path, &fs) == nil && fs.Type == unix.NSFS_MAGIC && unix.Stat(path, &st) == nil {
			names[uint32(st.Ino)] = e.Name()
		}
	}
	return names
}
