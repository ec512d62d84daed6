// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// OtherSpace makes another network namespace and returns a file that refers to it. Bridges in it take the interface indexes 2
// to upTo. The file is closed when the test ends.
func OtherSpace(t testing.TB, upTo int) *os.File {
	t.Helper()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	other, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	for n := 2; n <= upTo; n++ {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "b" + strconv.Itoa(n), Index: n}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	return other
}

// MoveDevice moves a device to another network namespace.
func MoveDevice(t testing.TB, name string, to *os.File) {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetNsFd(l, int(to.Fd()))
	}
	if err != nil {
		t.Fatalf("moving %s: %v", name, err)
	}
}

// AddVethAt adds a veth pair whose first end has the given index.
func AddVethAt(t testing.TB, index int, name, peer string) {
	t.Helper()
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, Index: index}, PeerName: peer}); err != nil {
		t.Fatal(err)
	}
}

// SetMAC sets the MAC address of interface dev.Name to dev.HardwareAddr.
func SetMAC(t testing.TB, dev *net.Interface) {
	t.Helper()
	l, err := netlink.LinkByName(dev.Name)
	if err == nil {
		err = netlink.LinkSetHardwareAddr(l, dev.HardwareAddr)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// AddToLo adds addresses to the loopback device of this namespace.
func AddToLo(addrs ...netip.Addr) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	err = errors.Join(WriteSysctl("ipv6/conf/lo/disable_ipv6", "0"), netlink.LinkSetUp(lo))
	for _, a := range addrs {
		err = errors.Join(err, netlink.AddrAdd(lo, &netlink.Addr{
			IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}, Flags: unix.IFA_F_NODAD,
		}))
	}
	return err
}
