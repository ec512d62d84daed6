// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"fmt"
	"time"

	"culvert/internal/host/udpsock"
)

const (
	// placeWait is how long a process that was killed just now may take to let go of its sockets.
	placeWait = 2 * time.Second
	// placePoll is how often they are looked at meanwhile.
	placePoll = 50 * time.Millisecond
)

// takePlace takes the router's lock and makes sure that nobody else serves its addresses. It must
// come before the router opens sockets of its own.
func takePlace(ctx context.Context, r *Router) (*Lock, error) {
	deadline := time.Now().Add(placeWait)
	for {
		lock, err := TakeLock(r.ID())
		if err == nil {
			if err = checkSockets(r); err == nil {
				return lock, nil
			}
			_ = lock.Release()
		}
		if time.Now().After(deadline) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(placePoll):
		}
	}
}

// checkSockets refuses addresses that another process has UDP sockets on. The reference lets
// several processes bind one address, and the kernel then shares the packets out among them.
func checkSockets(r *Router) error {
	others, err := udpsock.Others(r.Sockets())
	if err != nil {
		return err
	}
	if len(others) == 0 {
		return nil
	}
	first := others[0]
	hint := "stop it first"
	if first.PID == 0 {
		hint += " ('ss -ulpn' may tell which it is)"
	}
	return fmt.Errorf("router %s: %s is in use by %s: %s", r.ID(), first.Addr, first, hint)
}
