// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"context"
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Bind listens on a TCP address, beside listeners of this process that are about to be closed: one of them may have an address that
// overlaps, as 127.0.0.1:9441 does with 0.0.0.0:9441. Both listen until the former one is closed, so that nothing is lost if it is
// to go on instead. Nil listeners, and those that are closed, are no others.
func Bind(address string, own ...net.Listener) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if !errors.Is(err, unix.EADDRINUSE) || len(own) == 0 {
		return l, err
	}
	// The kernel lets sockets of one user overlap that all have this option, also if they get it after bind(2). It is taken away
	// again, so that other processes find the address in use as before.
	shared := false
	for _, o := range own {
		shared = share(o, true) || shared
		defer share(o, false)
	}
	if !shared {
		return nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if controlled := c.Control(func(fd uintptr) { err = setShared(fd, true) }); controlled != nil {
			return controlled
		}
		return err
	}}
	beside, besideErr := config.Listen(context.Background(), "tcp", address)
	if besideErr != nil {
		return nil, err // somebody else has it
	}
	share(beside, false)
	return beside, nil
}

// share sets whether a listener lets others overlap with it. It tells whether that has worked, which it does not without a listener
// or with one that is closed.
func share(l net.Listener, with bool) (done bool) {
	s, ok := l.(syscall.Conn)
	if !ok {
		return false
	}
	c, err := s.SyscallConn()
	if err != nil {
		return false
	}
	return c.Control(func(fd uintptr) { done = setShared(fd, with) == nil }) == nil && done
}

func setShared(fd uintptr, with bool) error {
	value := 0
	if with {
		value = 1
	}
	return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, value)
}
