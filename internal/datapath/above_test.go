// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"culvert/internal/host/pins"
	"culvert/internal/testbed"
)

// TestForeignProgramAbove has a program that is not culvert's on the device that an interface is in. The kernel takes no other below it, and
// whoever asks is told which one it is: a look without a start, an attach, and an attach that the program has come before.
func TestForeignProgramAbove(t *testing.T) {
	testbed.InNamespace(t)
	port := testbed.AddVeth(t, "v0", "v1")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "above0"}}
	must(netlink.LinkAdd(bridge))
	v0, err := netlink.LinkByName("v0")
	must(err)
	must(netlink.LinkSetMaster(v0, bridge))
	options := Options{Name: "r", Interfaces: []string{"v0"}}
	if problems, _ := Check(options, nil); len(problems) > 0 {
		t.Errorf("without a program above: %v", problems)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "foreign", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	must(err)
	defer prog.Close()
	above, err := net.InterfaceByName("above0")
	must(err)
	l, err := pins.Attach(prog, above, true)
	must(err)
	defer l.Close()

	want := func(who string, err error) {
		t.Helper()
		for _, part := range []string{"attaching to v0: it is in above0, which carries XDP program ", "(named foreign)", "'culvert doctor -i above0'"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, want %q", who, err, part)
			}
		}
	}
	problems, _ := Check(options, nil)
	if len(problems) != 1 || problems[0].Interface != "v0" {
		t.Fatalf("the look says %v", problems)
	}
	want("the look", problems[0].Err)
	_, err = Attach(options)
	want("the attach", err)
	_, err = pins.Attach(prog, port, false)
	want("the kernel", err)

	must(l.Close())
	mustAttach(t, "v0")
}
