// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolValue is struct ethtool_value of linux/ethtool.h.
type ethtoolValue struct {
	cmd  uint32
	data uint32
}

// ethtoolRequest is struct ifreq of linux/if.h with its pointer member.
type ethtoolRequest struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [24 - unsafe.Sizeof(uintptr(0))]byte
}

// checksumOffloadOff makes a veth finish its checksums: it hands packets over with them unfinished
// otherwise, and an XDP program sees that.
func checksumOffloadOff(ifname string) error {
	for name, cmd := range map[string]uint32{
		"rx checksum offload": unix.ETHTOOL_SRXCSUM,
		"tx checksum offload": unix.ETHTOOL_STXCSUM,
	} {
		if _, err := ethtool(ifname, cmd, 0); err != nil {
			return fmt.Errorf("switch %s of %s off: %w", name, ifname, err)
		}
	}
	return nil
}

// groOn turns on NAPI with GRO: a frame that XDP redirects into a veth whose peer has no NAPI is
// lost. The device has to be up, or the kernel does not note that its peer may be redirected to.
func groOn(ifname string) error {
	if _, err := ethtool(ifname, unix.ETHTOOL_SGRO, 1); err != nil {
		return fmt.Errorf("switch gro of %s on: %w", ifname, err)
	}
	return nil
}

// ethtool runs one of the commands of linux/ethtool.h that set or get a number,
// and returns that number.
func ethtool(ifname string, cmd, data uint32) (uint32, error) {
	if len(ifname) >= unix.IFNAMSIZ {
		return 0, unix.ENAMETOOLONG
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	value := ethtoolValue{cmd: cmd, data: data}
	req := ethtoolRequest{data: unsafe.Pointer(&value)}
	copy(req.name[:], ifname)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	runtime.KeepAlive(&value)
	if errno != 0 {
		return 0, errno
	}
	return value.data, nil
}
