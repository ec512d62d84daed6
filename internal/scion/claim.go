// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"fmt"
	"slices"
	"time"

	"culvert/internal/host/procnet"
	"culvert/internal/host/udpsock"
)

const (
	// claimWait is how long claim waits for the lock and the addresses. The sockets of a process that was just killed
	// may take a moment to close.
	claimWait = 2 * time.Second
	// claimPoll is how often claim tries meanwhile.
	claimPoll = 50 * time.Millisecond
)

// claim takes the router's lock and makes sure that no other process serves its addresses. It has to be called before the
// router opens sockets of its own.
func claim(ctx context.Context, r *Router) (*Lock, error) {
	deadline := time.Now().Add(claimWait)
	for {
		lock, err := TakeLock(r.ID())
		if err == nil {
			if err = checkSockets(r, 0); err == nil {
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
		case <-time.After(claimPoll):
		}
	}
}

// checkSockets refuses addresses that another process than served has UDP sockets on. The reference lets several processes bind
// one address, and the kernel then distributes the packets among them.
func checkSockets(r *Router, served int) error {
	ending.Wait() // what this process is about to close is nobody's
	others, err := udpsock.Others(r.Sockets())
	if err != nil {
		return err
	}
	others = slices.DeleteFunc(others, func(h procnet.Holder) bool { return h.PID != 0 && h.PID == served })
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
