// SPDX-License-Identifier: Apache-2.0

package fleetrun

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/testbed"
)

// listening is a namespace with somebody who writes a byte on each connection and keeps it, and dialers.
func listening(t *testing.T) (*dialers, string) {
	t.Helper()
	space, err := load.NewNetns()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = space.Close() })
	var l net.Listener
	if err := space.Do(func() error { l, err = net.Listen("tcp4", "127.0.0.2:0"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = c.Write([]byte{1})
		}
	}()
	d, err := newDialers(space)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.end)
	return d, l.Addr().String()
}

// Hundreds of connections at once are made in the namespace, by few threads.
func TestDialers(t *testing.T) {
	testbed.NeedRoot(t)
	d, to := listening(t)
	before := threads(t)
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() {
			c, err := d.dial(t.Context(), to)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if n, err := c.Read(make([]byte, 2)); n != 1 {
				t.Errorf("read %d bytes, %v", n, err)
			}
		})
	}
	all.Wait()
	const more = 50 // for system calls that block
	if now := threads(t); now > before+more {
		t.Errorf("%d threads, before it was %d", now, before)
	}
}

// Connections wait until others have greeted, or are gone. What nobody takes is an error, and so is what comes after the end.
func TestGreeting(t *testing.T) {
	testbed.NeedRoot(t)
	d, to := listening(t)
	dial := func() (net.Conn, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		return d.dial(ctx, to)
	}
	var all []net.Conn
	connect := func() {
		t.Helper()
		c, err := d.dial(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		all = append(all, c)
	}
	full := func() {
		t.Helper()
		if _, err := dial(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one more than may greet: %v", err)
		}
	}
	if c, err := d.dial(t.Context(), "127.0.0.3:9"); err == nil {
		_ = c.Close()
		t.Error("connected to nobody")
	}
	for range mostGreeting {
		connect()
	}
	full()
	for range 4 {
		if _, err := all[0].Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	connect()
	full()
	_ = all[0].Close() // it has greeted before
	full()
	_ = all[1].Close()
	connect()
	full()
	d.end()
	if _, err := d.dial(t.Context(), to); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// threads is how many threads this process has.
func threads(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
