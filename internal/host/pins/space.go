// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Space identifies a network namespace.
type Space struct {
	// Inode is what tools show and what the directories of the pins are called.
	Inode uint32
	// Cookie is never used again as long as the machine runs; an inode is.
	Cookie uint64
}

// Here identifies the network namespace of the calling thread.
func Here() (s Space, err error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return s, fmt.Errorf("reading the network namespace: %w", err)
	}
	s.Inode = uint32(st.Ino)
	s.Cookie, err = Cookie()
	return s, err
}

// Dir is the directory below root for what is pinned in the network namespace of an inode.
func Dir(root string, inode uint32) string {
	return filepath.Join(root, strconv.FormatUint(uint64(inode), 10))
}

// Cookie reads SO_NETNS_COOKIE of the calling thread's network namespace; any socket will do.
func Cookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("opening a socket to tell the network namespace: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("reading the cookie of the network namespace: %w", err)
	}
	return cookie, nil
}
