// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"culvert/internal/host/trust"
	"culvert/internal/scion/handover"
	"culvert/internal/scion/scionplane"
)

// Lock keeps a second process from running the same router in a network namespace.
type Lock = trust.Lock

// sharedLock is a lock that several configurations of a router hold, one of which follows the other.
type sharedLock struct {
	lock    *Lock
	holders handover.Holders
}

func newSharedLock(l *Lock) *sharedLock {
	s := &sharedLock{lock: l}
	return s.hold()
}

func (s *sharedLock) hold() *sharedLock {
	s.holders.Hold()
	return s
}

// TakeLock takes the lock of the router called id in the current network namespace. If another process holds it, the
// error names that process.
func TakeLock(id string) (*Lock, error) {
	path, err := lockPath(id)
	if err != nil {
		return nil, err
	}
	lock, err := trust.TakeLock(path)
	if errors.Is(err, trust.ErrLocked) {
		return nil, fmt.Errorf("router %s is served by %s: stop that process first", id, trust.HolderName(path))
	}
	if err != nil {
		return nil, fmt.Errorf("taking the lock of router %s: %w", id, err)
	}
	return lock, nil
}

// ServerPID returns the process that runs the router called id in the current network namespace. It returns 0 if none
// does, or if it is in another PID namespace.
func ServerPID(id string) int {
	path, err := lockPath(id)
	if err != nil {
		return 0
	}
	return trust.LockHolder(path)
}

// lockPath returns the path of the lock of the router called id in the network namespace of the calling thread.
func lockPath(id string) (string, error) {
	var ns unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &ns); err != nil {
		return "", fmt.Errorf("looking at this network namespace: %w", err)
	}
	return scionplane.LockPath(uint32(ns.Ino), id), nil
}
