// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"encoding/binary"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// statisticsSet is ETH_SS_STATS of linux/ethtool.h.
	statisticsSet = 1
	// nameLen is ETH_GSTRING_LEN, the size in bytes of a statistic's name.
	nameLen = 32
)

// EthtoolStats returns the statistics of a device's driver by name, as "ethtool -S" shows them. The device is in the
// network namespace of the calling thread.
func EthtoolStats(ifname string) (map[string]uint64, error) {
	if len(ifname) >= unix.IFNAMSIZ {
		return nil, unix.ENAMETOOLONG
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	ne := binary.NativeEndian
	// struct ethtool_sset_info has the command, a reserved word, a 64-bit mask of sets, and the size of each set.
	info := make([]byte, 4+4+8+4)
	ne.PutUint32(info, unix.ETHTOOL_GSSET_INFO)
	ne.PutUint64(info[8:], 1<<statisticsSet)
	if err := ethtoolBuffer(fd, ifname, info); err != nil {
		return nil, err
	}
	n := int(ne.Uint32(info[16:]))
	if ne.Uint64(info[8:]) == 0 || n == 0 {
		return nil, unix.EOPNOTSUPP
	}
	// struct ethtool_gstrings has the command, the set, the number of names, and the names.
	names := make([]byte, 12+n*nameLen)
	ne.PutUint32(names, unix.ETHTOOL_GSTRINGS)
	ne.PutUint32(names[4:], statisticsSet)
	ne.PutUint32(names[8:], uint32(n))
	if err := ethtoolBuffer(fd, ifname, names); err != nil {
		return nil, err
	}
	// struct ethtool_stats has the command, the number of values, and the values of 64 bits.
	values := make([]byte, 8+n*8)
	ne.PutUint32(values, unix.ETHTOOL_GSTATS)
	ne.PutUint32(values[4:], uint32(n))
	if err := ethtoolBuffer(fd, ifname, values); err != nil {
		return nil, err
	}
	stats := make(map[string]uint64, n)
	for i := range n {
		name := unix.ByteSliceToString(names[12+i*nameLen : 12+(i+1)*nameLen])
		stats[name] = ne.Uint64(values[8+i*8:])
	}
	return stats, nil
}

// ethtoolBuffer runs the ethtool command at the start of the buffer. The kernel writes its answer into the buffer.
func ethtoolBuffer(fd int, ifname string, buffer []byte) error {
	req := ethtoolRequest{data: unsafe.Pointer(&buffer[0])}
	copy(req.name[:], ifname)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	runtime.KeepAlive(buffer)
	if errno != 0 {
		return errno
	}
	return nil
}
