// SPDX-License-Identifier: Apache-2.0

package sflow

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket sends datagrams to a collector. It never waits for the collector, only for a name server.
type Socket struct {
	host   string
	port   uint16
	source netip.Addr

	v4, v6 int // of each IP version, -1 if there is none
	fd     int // the one that is connected, -1 until the collector's address is known and there is a way to it
	remote netip.AddrPort
	local  netip.Addr
	tried  time.Time
	err    error
}

// redial is how often a socket is tried that could not be opened, or whose collector's name may have another address by now.
const redial = 10 * time.Second

// maxRefused is how many refusals of datagrams before may be reported in the place of sending one.
const maxRefused = 4

// NewSocket returns a socket for a collector, host and port, with a source address, which may be the zero value. It belongs to the network
// namespace of the calling thread. If the host is an address, it is connected at once.
func NewSocket(host string, port uint16, source netip.Addr) *Socket {
	s := &Socket{host: host, port: port, source: source, fd: -1}
	s.v4, s.err = socketFor(unix.AF_INET, source)
	var err error
	if s.v6, err = socketFor(unix.AF_INET6, source); s.v4 < 0 && err != nil {
		s.err = err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		s.err = s.open()
	}
	return s
}

// socketFor returns a socket of a family, -1 if the kernel or the source address has another one.
func socketFor(family int, source netip.Addr) (int, error) {
	if source.IsValid() && source.Is4() != (family == unix.AF_INET) {
		return -1, nil
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("opening a UDP socket: %w", err)
	}
	if source.IsValid() {
		if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(source, 0))); err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("sending from %s: %w", source, err)
		}
	}
	return fd, nil
}

// disconnect makes a socket forget the address that it is connected to, and the source address that came of it.
func disconnect(fd int) {
	none := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, _ = unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&none)), unsafe.Sizeof(none))
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	sa := &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	if dev, err := net.InterfaceByName(a.Addr().Zone()); err == nil {
		sa.ZoneId = uint32(dev.Index)
	}
	return sa
}

// resolve returns the address of the collector, of the source's family if there is a source.
func (s *Socket) resolve() (netip.Addr, error) {
	if a, err := netip.ParseAddr(s.host); err == nil {
		return a.Unmap(), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", s.host)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range all {
		if a = a.Unmap(); a.Is4() && s.v4 >= 0 || a.Is6() && s.v6 >= 0 {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s has no address of the right IP version", s.host)
}

func (s *Socket) open() (err error) {
	s.tried = time.Now()
	addr, err := s.resolve()
	if err != nil {
		return err
	}
	remote, fd := netip.AddrPortFrom(addr, s.port), s.v6
	if addr.Is4() {
		fd = s.v4
	}
	if fd < 0 {
		return fmt.Errorf("reaching %s: no socket of its IP version, with this source", remote)
	}
	s.fd = -1
	disconnect(fd)
	if err = unix.Connect(fd, sockaddr(remote)); err != nil {
		return fmt.Errorf("reaching %s: %w", remote, err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("reaching %s: %w", remote, err)
	}
	switch sa := name.(type) {
	case *unix.SockaddrInet4:
		s.local = netip.AddrFrom4(sa.Addr)
	case *unix.SockaddrInet6:
		s.local = netip.AddrFrom16(sa.Addr)
	}
	s.fd, s.remote = fd, remote
	return nil
}

// Local returns the address that datagrams are sent from, the zero value while there is no way to the collector.
func (s *Socket) Local() netip.Addr { return s.local }

// Ready connects the socket if it is not connected, and that was not tried for some time.
func (s *Socket) Ready(now time.Time) error {
	if s.fd < 0 && now.Sub(s.tried) >= redial {
		s.err = s.open()
	}
	if s.fd < 0 {
		return s.err
	}
	return nil
}

// Send sends a datagram. An error may also be about the one before.
func (s *Socket) Send(datagram []byte) error {
	if s.fd < 0 {
		return s.err
	}
	err := unix.Send(s.fd, datagram, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	for again, n := err, 0; n < maxRefused && errors.Is(again, unix.ECONNREFUSED); n++ { // for ones before: this one was not sent
		again = unix.Send(s.fd, datagram, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
	if err == nil {
		return nil
	}
	if now := time.Now(); now.Sub(s.tried) >= redial { // the name or the way may be another one
		s.err = s.open()
	}
	return fmt.Errorf("sending to %s: %w", s.remote, err)
}

// Pending returns what has been heard since against datagrams that were sent, nil if nothing has.
func (s *Socket) Pending() error {
	if s.fd < 0 {
		return nil
	}
	n, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && n != 0 {
		return fmt.Errorf("sending to %s: %w", s.remote, unix.Errno(n))
	}
	return nil
}

// Close closes the socket.
func (s *Socket) Close() {
	for _, fd := range []int{s.v4, s.v6} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	s.v4, s.v6, s.fd = -1, -1, -1
}
