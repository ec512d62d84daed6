// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"github.com/scionproto/scion/pkg/addr"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The reference router panics on a packet of its own AS with a service address as source: validateSrcHost asks that
// address for its IP. The fast path drops such packets, but does not see those in IP fragments. So the slow path's
// sockets get a filter. It is usually bpf/scion/socket.bpf.c, which also checks the interface. The classic BPF filter
// here is for a process that may not load that one.

// Offsets in bytes of fields of the SCION common and address header. A UDP socket's filter sees the datagram from the
// UDP header on.
const (
	guardNext      = 8 + 4
	guardPathType  = 8 + 8
	guardAddrTypes = 8 + 9
	guardSrcIA     = 8 + 20
	guardMinLen    = 8 + 28
	// The TTL and the hop limit, relative to the IP header (linux/filter.h, SKF_NET_OFF).
	guardTTL4, guardHopLimit6 = 0xfff00000 + 8, 0xfff00000 + 7
)

// guardBFD drops BFD packets with a TTL or hop limit below minTTL, which bfdGate does not see. Other packets go on to
// the instructions that follow. With a minTTL of 0 there are none.
func guardBFD(minTTL uint8, v4 bool) []bpf.Instruction {
	if minTTL == 0 {
		return nil
	}
	ttl := bpf.LoadAbsolute{Off: guardHopLimit6, Size: 1}
	if v4 {
		ttl.Off = guardTTL4
	}
	const bfd = 203
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtLen},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: guardNext + 1, SkipTrue: 5},
		bpf.LoadAbsolute{Off: guardNext, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: bfd, SkipTrue: 3},
		ttl,
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: uint32(minTTL), SkipTrue: 1},
		bpf.RetConstant{Val: 0},
	}
}

// guardProgram drops packets of path type SCION or EPIC from a service address of the local AS.
func guardProgram(local addr.IA) []bpf.Instruction {
	const (
		pathSCION, pathEPIC = 1, 3
		typeSVC             = 4
		accept, drop        = 1 << 18, 0
	)
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtLen},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: guardMinLen, SkipTrue: 11},
		bpf.LoadAbsolute{Off: guardPathType, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: pathSCION, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: pathEPIC, SkipTrue: 8},
		bpf.LoadAbsolute{Off: guardAddrTypes, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: typeSVC, SkipTrue: 5},
		bpf.LoadAbsolute{Off: guardSrcIA, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(local >> 32), SkipTrue: 3},
		bpf.LoadAbsolute{Off: guardSrcIA + 4, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(local), SkipTrue: 1},
		bpf.RetConstant{Val: drop},
		bpf.RetConstant{Val: accept},
	}
}

// guardSockets puts the filter on this process's UDP sockets that are bound to one of the addresses. The reference does
// not export its sockets, so they are found among the process's file descriptors.
func guardSockets(local addr.IA, bfdMinTTL uint8, bound []netip.AddrPort) error {
	filters := map[bool][]unix.SockFilter{}
	for _, v4 := range []bool{false, true} {
		program, err := bpf.Assemble(append(guardBFD(bfdMinTTL, v4), guardProgram(local)...))
		if err != nil {
			return fmt.Errorf("assembling the slow path's socket filter: %w", err)
		}
		for _, in := range program {
			filters[v4] = append(filters[v4], unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K})
		}
	}
	wanted := make(map[netip.AddrPort]bool)
	for _, a := range bound {
		wanted[a] = true
	}
	guarded := make(map[netip.AddrPort]bool)
	err := eachUDPSocket(func(fd int, at netip.AddrPort) error {
		if !wanted[at] {
			return nil
		}
		filter := filters[at.Addr().Is4()]
		fprog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &fprog); err != nil {
			return fmt.Errorf("putting a filter on the slow path's socket at %s: %w", at, err)
		}
		guarded[at] = true
		return nil
	})
	if err != nil {
		return err
	}
	if len(guarded) != len(wanted) {
		return errors.New("the slow path has not opened all of its sockets")
	}
	return nil
}

// eachUDPSocket calls do for each of this process's UDP sockets, with the local address of the socket.
func eachUDPSocket(do func(fd int, at netip.AddrPort) error) error {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("listing the slow path's sockets: %w", err)
	}
	for _, entry := range fds {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if at, ok := udpAddress(fd); ok {
			if err := do(fd, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// udpAddress returns the local address of a file descriptor. It is false for anything but a UDP socket.
func udpAddress(fd int) (netip.AddrPort, bool) {
	proto, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil || proto != unix.IPPROTO_UDP {
		return netip.AddrPort{}, false
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, false
	}
	return addrPort(name)
}

// peerAddress returns the remote address of a file descriptor. It is false for a socket that is not connected.
func peerAddress(fd int) (netip.AddrPort, bool) {
	name, err := unix.Getpeername(fd)
	if err != nil {
		return netip.AddrPort{}, false
	}
	return addrPort(name)
}

func addrPort(name unix.Sockaddr) (netip.AddrPort, bool) {
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), true
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)), true
	}
	return netip.AddrPort{}, false
}
