// SPDX-License-Identifier: Apache-2.0

package cards

import (
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Space gives the calling goroutine's thread a network namespace with the taps of those wires that have several queues, for an emulator
// that is started from there. The namespace has no name: it ends with the emulator, however that ends. leave returns the thread to
// where it was.
func Space(wires []Wire) (leave func(), err error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("cards with several queues are taps: run this as root")
	}
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	leave = func() {
		// A thread that cannot return stays locked, and ends with the goroutine.
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		home.Close()
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		leave()
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	// The bridges must send nothing of their own.
	err = os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
	for n, w := range wires {
		if err == nil && w.Queues > 1 {
			err = joinTaps(n, w.Queues)
		}
	}
	if err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// tapMTU has room for all that the cards send.
const tapMTU = 16 << 10

// joinTaps makes the taps of a wire and joins them with a bridge, which forwards all frames to the other end whatever their addresses
// are.
func joinTaps(wire, queues int) error {
	snooping := false
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("wire%d", wire), MTU: tapMTU}, MulticastSnooping: &snooping}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("join two taps: %w", err)
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("join two taps: %w", err)
	}
	for end, queues := range map[string]int{"n": queues, "f": 1} {
		tap := &netlink.Tuntap{
			LinkAttrs: netlink.LinkAttrs{Name: tapName(end, wire)},
			Mode:      netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR, Queues: 1,
		}
		if queues > 1 {
			tap.Flags |= netlink.TUNTAP_MULTI_QUEUE
		}
		err := netlink.LinkAdd(tap)
		for _, f := range tap.Fds {
			f.Close() // the tap stays, for the emulator to open
		}
		if err == nil {
			err = netlink.LinkSetMTU(tap, tapMTU)
		}
		if err == nil {
			err = netlink.LinkSetMaster(tap, bridge)
		}
		if err == nil {
			err = netlink.LinkSetLearning(tap, false)
		}
		if err == nil {
			err = netlink.LinkSetUp(tap)
		}
		if err != nil {
			return fmt.Errorf("make tap %s: %w", tap.Name, err)
		}
	}
	return nil
}
