// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Space identifies a network namespace.
type Space struct {
	// Inode is the inode number, which tools show and which names the directory of the pins. The kernel reuses it.
	Inode uint32
	// Cookie is unique until the machine is started again.
	Cookie uint64
}

// Here returns the network namespace of the calling thread.
func Here() (s Space, err error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return s, fmt.Errorf("reading the network namespace: %w", err)
	}
	s.Inode = uint32(st.Ino)
	s.Cookie, err = Cookie()
	return s, err
}

// Dir returns the directory below root for the pins of a network namespace, given its inode number.
func Dir(root string, inode uint32) string {
	return filepath.Join(root, strconv.FormatUint(uint64(inode), 10))
}

// ErrTooOld is the error on a kernel that has no cookies of network namespaces. It has come to light by asking for one.
var ErrTooOld = errors.New("this kernel is too old for culvert: it has no cookies of network namespaces (since Linux 5.14): " +
	"see 'culvert doctor' for what else it lacks")

// Cookie returns the cookie of the calling thread's network namespace (SO_NETNS_COOKIE of any socket).
func Cookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("opening a socket to tell the network namespace: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return 0, ErrTooOld
	}
	if err != nil {
		return 0, fmt.Errorf("reading the cookie of the network namespace: %w", err)
	}
	return cookie, nil
}
