// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// defaultBuffer is large enough for the notifications of a routing daemon that withdraws a full table.
	defaultBuffer = 64 << 20
	// readBuffer is large enough for any datagram of a dump. The kernel makes them as large as the last reader's
	// buffer, but 32 KiB at most.
	readBuffer = 64 << 10
	// sizeofHeader is the size of struct nlmsghdr.
	sizeofHeader = unix.SizeofNlMsghdr
)

// groups are the multicast groups that the listener subscribes to.
var groups = []uint32{
	unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH,
	unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
	unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
	unix.RTNLGRP_NEXTHOP,
	unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
}

// message is one netlink message. data is the payload after struct nlmsghdr, valid until the next read.
type message struct {
	kind  uint16
	flags uint16
	data  []byte
}

var (
	errAgain   = errors.New("nothing to read")
	errOverrun = errors.New("notifications were lost")
)

// socket is a raw rtnetlink socket that does not block. The netlink package's own sockets copy every
// message and parse it into maps, which takes too long for a full table.
type socket struct {
	fd     int
	buffer []byte
}

func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket for routes: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("binding a netlink socket for routes: %w", err)
	}
	return &socket{fd: fd, buffer: make([]byte, readBuffer)}, nil
}

// openListener opens a socket for notifications, with a receive buffer of the given size.
func openListener(size int) (*socket, error) {
	s, err := openSocket()
	if err != nil {
		return nil, err
	}
	// Without the privilege to exceed rmem_max the buffer is smaller. Losses are then more likely, and each one
	// makes Run read the tables again.
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) != nil {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size); err != nil {
			s.close()
			return nil, fmt.Errorf("setting the netlink receive buffer to %d bytes: %w", size, err)
		}
	}
	for _, g := range groups {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, int(g)); err != nil {
			s.close()
			return nil, fmt.Errorf("subscribing to netlink notifications of group %d: %w", g, err)
		}
	}
	return s, nil
}

// openDumper opens a socket for dumps. With strict checks the kernel filters a dump by the request's header.
func openDumper() (*socket, error) {
	s, err := openSocket()
	if err != nil {
		return nil, err
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1); err != nil {
		s.close()
		return nil, fmt.Errorf("asking for strict checks of netlink dumps (Linux 5.4 or newer is needed): %w", err)
	}
	return s, nil
}

func (s *socket) close() { unix.Close(s.fd) }

// request asks for a dump. body is the payload: the header of the message type, in the byte order of the machine.
func (s *socket) request(kind uint16, seq uint32, body []byte) error {
	b := make([]byte, sizeofHeader, sizeofHeader+len(body))
	binary.NativeEndian.PutUint32(b[0:], uint32(sizeofHeader+len(body)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	binary.NativeEndian.PutUint32(b[8:], seq)
	return unix.Sendto(s.fd, append(b, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// read passes the messages of one datagram to handle. It returns errAgain if there is no datagram and errOverrun if
// the kernel had to drop some. If seq is not 0, messages of other requests are left out.
func (s *socket) read(seq uint32, handle func(message)) error {
	n, pid, err := s.receive()
	switch {
	case errors.Is(err, unix.EAGAIN):
		return errAgain
	case errors.Is(err, unix.EINTR):
		return nil
	case errors.Is(err, unix.ENOBUFS):
		return errOverrun
	case err != nil:
		return fmt.Errorf("reading from a netlink socket: %w", err)
	case pid != 0:
		return nil // not from the kernel
	case n > len(s.buffer):
		// The datagram was truncated, so its messages are lost.
		s.buffer = make([]byte, n+readBuffer)
		return errOverrun
	}
	for b := s.buffer[:n]; len(b) >= sizeofHeader; {
		size := int(binary.NativeEndian.Uint32(b))
		if size < sizeofHeader || size > len(b) {
			return nil
		}
		if seq == 0 || binary.NativeEndian.Uint32(b[8:]) == seq {
			handle(message{
				kind:  binary.NativeEndian.Uint16(b[4:]),
				flags: binary.NativeEndian.Uint16(b[6:]),
				data:  b[sizeofHeader:size:size],
			})
		}
		b = b[min(align(size), len(b)):]
	}
	return nil
}

// receive is recvfrom, without the allocation of an address. n is the datagram's size, even if that exceeds the
// buffer (MSG_TRUNC); pid is the sender's port ID, 0 for the kernel.
func (s *socket) receive() (n int, pid uint32, err error) {
	var from unix.RawSockaddrNetlink
	size := uint32(unsafe.Sizeof(from))
	r, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(&s.buffer[0])),
		uintptr(len(s.buffer)), unix.MSG_TRUNC|unix.MSG_DONTWAIT,
		uintptr(unsafe.Pointer(&from)), uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return 0, 0, errno
	}
	return int(r), from.Pid, nil
}

// align rounds up to the alignment of netlink messages and attributes.
func align(n int) int { return (n + 3) &^ 3 }
