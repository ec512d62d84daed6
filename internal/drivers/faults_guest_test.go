// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"culvert/internal/testbed"
)

// fault is something that is wrong with a card, or with what is asked of culvert.
type fault struct {
	name string
	// make makes it, and returns what ends it. It may be nil.
	make func() (mend func())
	// port is the interface. line begins the line that doctor has in the check, which contains text. command begins the command that
	// mends it. Without a line, doctor is not asked.
	port, line, text, command string
	// config, if set, is refused with a line that contains refused. If that is empty, it is attached.
	config, refused string
}

// TestFaults has doctor look at cards with which something is wrong. Each fault has one line and its command, and so has the refusal of
// an attach. scripts/test-drivers.sh shows what this prints. A bond whose members leave during an attach is among the tests of bonds.
func TestFaults(t *testing.T) {
	b := newBed(t)
	link := func(name string, change func(netlink.Link) error) {
		b.here.Must(t, func() error {
			l, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			return change(l)
		})
	}
	plain, queues := b.ports["e1000e"][0].name, b.ports["virtio_net*4"][0].name
	route := func(names ...string) string {
		return fmt.Sprintf("interfaces = [\"%s\"]\n[route]\nblocks4 = 64\nblocks6 = 1024\n", strings.Join(names, `", "`))
	}
	master := func(name string) {
		link(name, func(m netlink.Link) error {
			l, err := netlink.LinkByName(queues)
			if err == nil {
				err = netlink.LinkSetDown(l) // what a bond takes has to be down
			}
			if err != nil {
				return err
			}
			return errors.Join(netlink.LinkSetMaster(l, m), netlink.LinkSetUp(l), netlink.LinkSetUp(m))
		})
	}
	b.must(t, "ethtool", "-K", plain, "rxvlan", "off")
	defer b.must(t, "ethtool", "-K", plain, "rxvlan", "on")
	for _, f := range []fault{
		{
			name: "no native XDP", port: plain, line: "FAIL " + plain + " native", text: "does not run XDP in the driver",
			command: `culvert run -c FILE, with mode = "generic"`, config: route(plain), refused: "XDP",
		},
		{
			name: "LRO", port: queues, line: "ok " + queues + " merging", text: "rx-gro-hw on: virtio_net turns it off by itself",
			config: route(queues),
			make: func() func() {
				b.must(t, "ethtool", "-K", queues, "rx-gro-hw", "on")
				return func() { b.must(t, "ethtool", "-K", queues, "rx-gro-hw", "off") }
			},
		},
		{
			name: "in a bridge", port: queues, line: "warn " + queues + " bridge", text: "port of the bridge br7",
			command: "ip link set dev " + queues + " nomaster", config: route(queues),
			make: func() func() {
				b.here.Must(t, func() error { return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br7"}}) })
				master("br7")
				return func() { link("br7", netlink.LinkDel) }
			},
		},
		{
			name: "a foreign program", port: queues, line: "FAIL " + queues + " program", text: "carries the XDP program foreign",
			command: "bpftool link detach id ", config: route(queues), refused: "carries XDP program",
			make: func() func() { return b.occupy(t, queues) },
		},
		{
			name: "a name that matches nothing", port: "nosuch0", line: "FAIL nosuch0 interface", text: "does not exist", command: "ip -brief link",
			config: route("nosuch0"), refused: "nosuch0 does not exist",
		},
		{name: "no queue for workers", config: route(queues) + "[workers]\ncpus = \"0\"\nqueue = 0\n", refused: "queue"},
		{
			name: "in two bonds", port: queues, line: "warn " + queues + " bond", text: "it is a member of bb,", command: "culvert doctor -i bb",
			config: route("bb", queues), refused: "it is a member of bb and runs the program of that: name only one of them",
			make: func() func() {
				for _, name := range []string{"ba", "bb"} {
					b.here.Must(t, func() error {
						bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: name})
						bond.Mode = netlink.BOND_MODE_ACTIVE_BACKUP
						return netlink.LinkAdd(bond)
					})
					master(name) // the kernel takes it out of the other one
				}
				return func() {
					link("ba", netlink.LinkDel)
					link("bb", netlink.LinkDel)
				}
			},
		},
	} {
		t.Run(f.name, func(t *testing.T) {
			if f.make != nil {
				defer f.make()()
			}
			say := func(what, text string) {
				fmt.Fprintf(os.Stdout, "fault: %s: %s: %s\n", f.name, what, strings.TrimSpace(text))
			}
			if f.line != "" {
				line, command := b.finding(f.port, strings.Fields(f.line)[2])
				say("doctor", line+" -> "+command)
				if !strings.HasPrefix(line, f.line+" ") || !strings.Contains(line, f.text) || !strings.HasPrefix(command, f.command) {
					t.Errorf("doctor says %q -> %q, want %q, %q, %q", line, command, f.line, f.text, f.command)
				}
			}
			if f.refused == "" {
				b.attach(t, f.config)
				b.detach(t)
				return
			}
			say("attach", b.refused(t, f.config, f.refused))
		})
	}
	t.Run("a card without queues", func(t *testing.T) {
		out, err := b.run("ethtool", "-L", queues, "combined", "0")
		fmt.Fprintf(os.Stdout, "fault: no queues: ethtool: %s\n", strings.Join(strings.Fields(out), " "))
		if err == nil {
			t.Error("a card was given no queues")
		}
		b.attach(t, route(queues))
		b.detach(t)
	})
}

// occupy attaches a program to a card, which is not culvert's.
func (b *bed) occupy(t *testing.T, name string) (leave func()) {
	t.Helper()
	var l link.Link
	b.here.Must(t, func() error {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "foreign", Type: ebpf.XDP, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, testbed.XDPPass), asm.Return()},
		})
		if err != nil {
			return err
		}
		defer prog.Close()
		dev, err := netlink.LinkByName(name)
		if err == nil {
			l, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: dev.Attrs().Index, Flags: link.XDPDriverMode})
		}
		return err
	})
	return func() { l.Close() }
}
