// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// IP runs ip(8) in the test's network namespace.
func IP(t testing.TB, args string) {
	t.Helper()
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", args, err, out)
	}
}

// Sysctl sets a sysctl below net, in the network namespace of the thread.
func Sysctl(t testing.TB, name, value string) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

// AddVeth adds a veth pair, sets both ends up and returns the first.
func AddVeth(t testing.TB, name, peer string) *net.Interface {
	t.Helper()
	// With one queue, packets are not reordered.
	attrs := netlink.LinkAttrs{Name: name, NumTxQueues: 1, NumRxQueues: 1}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: peer}); err != nil {
		t.Fatalf("add veth %s: %v", name, err)
	}
	for _, end := range []string{name, peer} {
		l, err := netlink.LinkByName(end)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
	}
	return Device(t, name)
}

// Device returns an interface of this namespace by name.
func Device(t testing.TB, name string) *net.Interface {
	t.Helper()
	p, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatalf("interface %s: %v", name, err)
	}
	return p
}

// DeleteDevice deletes an interface.
func DeleteDevice(t testing.TB, name string) {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if err != nil {
		t.Fatalf("delete %s: %v", name, err)
	}
}

// XDPProgram returns the ID of the XDP program on an interface, 0 if there is none.
func XDPProgram(t testing.TB, name string) uint32 {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	if xdp := l.Attrs().Xdp; xdp != nil && xdp.Attached {
		return xdp.ProgId
	}
	return 0
}

// AttachForeign attaches an XDP program that is not culvert's to an interface. It passes everything.
func AttachForeign(t testing.TB, name string) {
	t.Helper()
	attachProgram(t, name, asm.Instructions{asm.Mov.Imm(asm.R0, XDPPass), asm.Return()})
}

// attachProgram attaches an XDP program to an interface until the test ends.
func attachProgram(t testing.TB, name string, code asm.Instructions) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "foreign", Type: ebpf.XDP, Instructions: code, License: "GPL"})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: Device(t, name).Index, Flags: link.XDPDriverMode})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

// Rename renames a device, which is down meanwhile.
func Rename(t testing.TB, from, to string) {
	t.Helper()
	l, err := netlink.LinkByName(from)
	if err == nil {
		err = netlink.LinkSetDown(l)
	}
	if err == nil {
		err = netlink.LinkSetName(l, to)
	}
	if err == nil {
		err = netlink.LinkSetUp(l)
	}
	if err != nil {
		t.Fatalf("rename %s to %s: %v", from, to, err)
	}
}

// AddBridge adds a bridge, a device whose driver has no XDP.
func AddBridge(t testing.TB, name string) {
	t.Helper()
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
		t.Fatal(err)
	}
}
