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

// setOffloads readies a veth for XDP, in the calling thread's namespace.
//
// Checksum offload goes off in both directions, because a veth hands a packet
// over with its checksum unfinished otherwise, and an XDP program sees that.
// GRO goes on, because it turns on NAPI, and a frame that XDP redirects into a
// veth whose peer has no NAPI is lost without a trace.
func setOffloads(ifname string) error {
	if len(ifname) >= unix.IFNAMSIZ {
		return fmt.Errorf("interface name %q is too long", ifname)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket for ethtool: %w", err)
	}
	defer unix.Close(fd)
	for _, feature := range []struct {
		name string
		cmd  uint32
		on   uint32
	}{
		{"rx checksum offload", unix.ETHTOOL_SRXCSUM, 0},
		{"tx checksum offload", unix.ETHTOOL_STXCSUM, 0},
		{"gro", unix.ETHTOOL_SGRO, 1},
	} {
		value := ethtoolValue{cmd: feature.cmd, data: feature.on}
		req := ethtoolRequest{data: unsafe.Pointer(&value)}
		copy(req.name[:], ifname)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
		runtime.KeepAlive(&value)
		if errno != 0 {
			return fmt.Errorf("switch %s of %s: %w", feature.name, ifname, errno)
		}
	}
	return nil
}
