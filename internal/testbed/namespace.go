// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/host/netdev"
)

// Namespace is a network namespace other than the test's, with a thread in it.
type Namespace struct {
	jobs chan func()
	tid  int
}

// NewNamespace makes a network namespace. It ends with the test.
func NewNamespace(t testing.TB) *Namespace {
	t.Helper()
	s := &Namespace{jobs: make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		s.tid = unix.Gettid()
		err := unix.Unshare(unix.CLONE_NEWNET)
		ready <- err
		for f := range s.jobs {
			f()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() { close(s.jobs) })
	return s
}

// Do runs f on the namespace's thread and returns its error.
func (s *Namespace) Do(f func() error) error {
	done := make(chan error)
	s.jobs <- func() {
		err := errors.New("the function did not return")
		defer func() { done <- err }()
		err = f()
	}
	return <-done
}

// Must runs f in the namespace, and ends the test if f returns an error.
func (s *Namespace) Must(t testing.TB, f func() error) {
	t.Helper()
	if err := s.Do(f); err != nil {
		t.Fatal(err)
	}
}

// Take moves a device from the calling thread's namespace into this one.
func (s *Namespace) Take(t testing.TB, name string) {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetNsPid(l, s.tid)
	}
	if err != nil {
		t.Fatalf("move %s to another namespace: %v", name, err)
	}
}

// WriteSysctl sets a sysctl below net in the calling thread's namespace.
func WriteSysctl(name, value string) error {
	return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0)
}

// PrepareEnd sets a device of the calling thread's namespace up with addresses. It turns offloads off, so that packets have
// complete checksums and one segment each, as on a wire.
func PrepareEnd(name string, addrs ...string) error {
	for _, c := range []struct{ cmd, data uint32 }{
		{unix.ETHTOOL_SRXCSUM, 0}, {unix.ETHTOOL_STXCSUM, 0}, {unix.ETHTOOL_STSO, 0}, {unix.ETHTOOL_SGSO, 0},
	} {
		if _, err := netdev.Ethtool(name, c.cmd, c.data); err != nil {
			return fmt.Errorf("ethtool command %#x on %s: %w", c.cmd, name, err)
		}
	}
	if err := WriteSysctl("ipv6/conf/"+name+"/disable_ipv6", "0"); err != nil {
		return err
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(l, addr); err != nil {
			return fmt.Errorf("add %s: %w", a, err)
		}
	}
	return netlink.LinkSetUp(l)
}

// PassAll attaches a program that passes everything to the device with the given index, in the calling thread's namespace.
// Without it, frames that a program on the veth's peer sends with XDP_TX stay in the device's ring until another packet comes.
// GRO is enough for redirected frames (veth_xdp_flush).
func PassAll(t testing.TB, index int) error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, XDPPass), asm.Return()},
	})
	if err != nil {
		return err
	}
	defer prog.Close()
	l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: index, Flags: link.XDPDriverMode})
	if err != nil {
		return err
	}
	t.Cleanup(func() { l.Close() })
	return nil
}

// AddRoute adds a route to the calling thread's namespace.
func AddRoute(dst, via string) error {
	_, n, err := net.ParseCIDR(dst)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{Dst: n, Gw: net.ParseIP(via)})
}
