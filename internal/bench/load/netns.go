// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Netns is a network namespace, with a netlink socket in it. A namespace that NewNetns makes has no name, so the kernel
// removes it when the process ends, however it ends.
type Netns struct {
	ns netns.NsHandle
	nl *netlink.Handle
}

// NewNetns makes a namespace in which the kernel sends nothing of its own accord. IPv6 is off until a device gets an IPv6
// address (see End.Assign), because its messages would mix with the traffic. lo is up.
func NewNetns() (*Netns, error) {
	s := &Netns{ns: netns.None()}
	err := OnThread(func() error {
		var err error
		if s.ns, err = netns.New(); err != nil {
			return fmt.Errorf("make a network namespace (root is needed): %w", err)
		}
		for _, which := range []string{"all", "default"} {
			path := "/proc/sys/net/ipv6/conf/" + which + "/disable_ipv6"
			if err := os.WriteFile(path, []byte("1"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("turn IPv6 off in a new namespace: %w", err)
			}
		}
		if s.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return fmt.Errorf("open netlink in a new namespace: %w", err)
		}
		lo, err := s.nl.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("find lo in a new namespace: %w", err)
		}
		return s.nl.LinkSetUp(lo)
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// CurrentNetns opens the namespace of the calling thread, which should be locked to its goroutine.
func CurrentNetns() (*Netns, error) {
	ns, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("open the network namespace of the thread: %w", err)
	}
	s := &Netns{ns: ns}
	if s.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// OpenNetns opens a namespace by its name in ip-netns(8).
func OpenNetns(name string) (*Netns, error) {
	ns, err := netns.GetFromName(name)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", name, err)
	}
	s := &Netns{ns: ns}
	if s.nl, err = netlink.NewHandleAt(ns, unix.NETLINK_ROUTE); err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink in %s: %w", name, err), s.Close())
	}
	return s, nil
}

// OnThread runs fn on an operating system thread of its own. The thread ends with fn, so fn may change its namespace, CPUs
// and priority.
func OnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		// A goroutine that ends while it is locked to its thread ends the thread.
		runtime.LockOSThread()
		done <- fn()
	}()
	return <-done
}

// Do runs fn on a thread of its own in the namespace (see OnThread).
func (s *Netns) Do(fn func() error) error {
	return OnThread(func() error {
		if err := s.Enter(); err != nil {
			return err
		}
		return fn()
	})
}

// Enter moves the calling thread, which must be locked to its goroutine, into the namespace.
func (s *Netns) Enter() error {
	if err := netns.Set(s.ns); err != nil {
		return fmt.Errorf("enter a network namespace: %w", err)
	}
	return nil
}

// Netlink is a netlink socket in the namespace, valid until Close.
func (s *Netns) Netlink() *netlink.Handle { return s.nl }

// FD is the namespace's file descriptor, valid until Close.
func (s *Netns) FD() int { return int(s.ns) }

// Close closes the namespace. The kernel removes it, with its devices, once nothing else holds it.
func (s *Netns) Close() error {
	if s.nl != nil {
		s.nl.Close()
		s.nl = nil
	}
	if s.ns.IsOpen() {
		return s.ns.Close()
	}
	return nil
}
