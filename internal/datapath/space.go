// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// space identifies a network namespace.
type space struct {
	// inode is what tools show and what the directories of the pins are called.
	inode uint32
	// cookie is never used again as long as the machine runs; an inode is.
	cookie uint64
}

// currentSpace identifies the network namespace of the calling thread.
func currentSpace() (s space, err error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return s, fmt.Errorf("reading the network namespace: %w", err)
	}
	s.inode = uint32(st.Ino)
	s.cookie, err = netnsCookie()
	return s, err
}

// netnsCookie reads SO_NETNS_COOKIE; any socket will do.
func netnsCookie() (uint64, error) {
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
