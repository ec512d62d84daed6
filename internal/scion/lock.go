// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Lock keeps a second process from running the same router in a network namespace. It is a
// listening abstract socket: the kernel scopes those to the namespace and drops them with the
// process, so no stale lock is ever left.
type Lock struct {
	listener *net.UnixListener
}

// TakeLock takes the lock of the router called id. When another process holds it the error says
// which one.
func TakeLock(id string) (*Lock, error) {
	addr := &net.UnixAddr{Net: "unix", Name: "@culvert/scion/" + id}
	listener, err := net.ListenUnix("unix", addr)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("router %s runs already%s: stop that process first", id, holder(addr))
	}
	if err != nil {
		return nil, fmt.Errorf("taking the lock of router %s: %w", id, err)
	}
	return &Lock{listener: listener}, nil
}

// Release gives the lock up.
func (l *Lock) Release() error { return l.listener.Close() }

// holder says which process listens on addr, as far as the kernel tells.
func holder(addr *net.UnixAddr) string {
	conn, err := net.DialUnix("unix", nil, addr)
	if err != nil {
		return ""
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return ""
	}
	text := ""
	err = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			text = fmt.Sprintf(" as process %d", cred.Pid)
		}
	})
	if err != nil {
		return ""
	}
	return text
}
