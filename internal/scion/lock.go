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
	addr := lockAddr(id)
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
	if pid := holderPID(addr); pid != 0 {
		return fmt.Sprintf(" as process %d", pid)
	}
	return ""
}

// ServerPID returns the process that runs the router called id in the current network namespace, 0
// when none does or it is in another PID namespace.
func ServerPID(id string) int { return holderPID(lockAddr(id)) }

func lockAddr(id string) *net.UnixAddr {
	return &net.UnixAddr{Net: "unix", Name: "@culvert/scion/" + id}
}

// holderPID returns 0 when nobody listens or the kernel does not tell.
func holderPID(addr *net.UnixAddr) (pid int) {
	conn, err := net.DialUnix("unix", nil, addr)
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	err = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	if err != nil {
		return 0
	}
	return pid
}
