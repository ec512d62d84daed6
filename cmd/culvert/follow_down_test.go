// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/vishvananda/netlink"

	"culvert/internal/testbed"
)

// TestInterfaceDown sets an interface of a process down, then its peer, and renames it. The log, status, doctor and a metric show
// each of these.
func TestInterfaceDown(t *testing.T) {
	b := newPairsBed(t)
	path := b.file("c.toml", "interfaces = ['ft0', 'fx0']\nmetrics = '127.0.0.1:9441'\n[filter]\n")
	p := runAttached(t, path)
	const metric = `culvert_interface_up{interface="ft0"}`
	b.metric("127.0.0.1:9441", metric, "1")
	l, err := netlink.LinkByName("ft0")
	must(err)
	far, err := netlink.LinkByName("ft1")
	must(err)

	must(netlink.LinkSetDown(l))
	p.waitFor(t, `the interface is down: no packet comes in by it" interface=ft0 mend="ip link set dev ft0 up"`)
	b.expect(0, "interface ft0  DOWN: ip link set dev ft0 up\n", "status")
	b.eventually("ip link set dev ft0 up", "doctor")
	b.metric("127.0.0.1:9441", metric, "0")
	b.metric("127.0.0.1:9441", `culvert_interface_up{interface="fx0"}`, "1")

	must(netlink.LinkSetDown(far))
	must(netlink.LinkSetUp(l))
	p.waitFor(t, `the interface has no carrier: no packet comes in by it" interface=ft0`)
	b.expect(0, "interface ft0  NO CARRIER\n", "status")
	b.eventually("no carrier: nothing comes in or goes out", "doctor")
	b.metric("127.0.0.1:9441", metric, "0")

	must(netlink.LinkSetUp(far))
	p.waitFor(t, `the interface is up" interface=ft0`)
	b.metric("127.0.0.1:9441", metric, "1")
	must(netlink.LinkSetName(l, "later0"))
	b.eventually("interface ft0  renamed to later0 since\n", "status")
	b.eventually("it was renamed to later0, and culvert is attached to it under that name", "doctor -c "+path)
	b.metric("127.0.0.1:9441", metric, "1")
}

// TestInterfaceInBridge puts an interface of a process with an IP router into a bridge, and takes it out again. The log, status and doctor
// say that the IP router does nothing there.
func TestInterfaceInBridge(t *testing.T) {
	b := newPairsBed(t)
	path := b.file("c.toml", "interfaces = ['ft0', 'fx0']\n[route]\n")
	p := runAttached(t, path)
	testbed.AddBridge(t, "ftbr")
	l, err := netlink.LinkByName("ft0")
	must(err)
	bridge, err := netlink.LinkByName("ftbr")
	must(err)

	const inStatus = "    port of the bridge ftbr: the IP router leaves what comes in by it to the kernel: ip link set dev ft0 nomaster\n"
	must(netlink.LinkSetMaster(l, bridge))
	p.waitFor(t, `a port of a bridge: the IP router leaves what comes in by it to the kernel" interface=ft0 bridge=ftbr mend="ip link set dev ft0 nomaster"`)
	b.expect(0, "  interface ft0\n"+inStatus, "status")
	b.eventually("port of the bridge ftbr: the IP router leaves", "doctor")

	must(netlink.LinkSetNoMaster(l))
	b.eventually("  interface ft0\n    FAILS: no frames", "status") // its peer has no NAPI
}
