// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/testbed"
)

// bondRefused has bonds that the kernel runs no XDP on. Each is refused with a line that has the command that mends it, and doctor
// has the same one. Afterwards the bond that was mended is attached.
func bondRefused(t *testing.T, b *bed) {
	in, out := b.pair(t, "veth/lacp")
	m := &trial{T: t, bed: b, driver: in.driver, in: in, out: out, mode: "native"}
	mend := func(command string) {
		t.Helper()
		for _, one := range strings.Split(command, " && ") {
			words := strings.Fields(one)
			b.must(t, words[0], words[1:]...)
		}
	}
	refused := func(what, line string) {
		t.Helper()
		b.refused(t, config("native", in, out), line)
		if command := m.doctor(in, "bond"); !strings.Contains(command, line) {
			t.Errorf("%s: doctor has the command %q, want %q", what, command, line)
		}
	}
	b.must(t, "ip", "link", "set", "dev", in.name, "type", "bond", "xmit_hash_policy", "vlan+srcmac")
	refused("hash policy", "ip link set dev "+in.name+" type bond xmit_hash_policy layer2+3")
	mend(m.doctor(in, "bond"))
	b.attach(t, config("native", in, out))
	b.detach(t)

	wires := in.bond.near.members
	mend("ip link set dev " + in.name + " down && ip link set dev " + wires[0] + " nomaster && ip link set dev " + wires[1] +
		" nomaster && ip link set dev " + in.name + " type bond mode balance-alb && ip link set dev " + wires[0] + " master " + in.name)
	refused("mode", "ip link set dev "+in.name+" type bond mode active-backup")
	mend(m.doctor(in, "bond"))
	b.attach(t, config("native", in, out))
	b.detach(t)

	// A member with a program of its own.
	b.here.Must(t, func() error {
		l, err := netlink.LinkByName(wires[0])
		if err != nil {
			return err
		}
		foreign, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Type: ebpf.XDP, License: "GPL", Flags: unix.BPF_F_XDP_HAS_FRAGS,
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, testbed.XDPPass), asm.Return()},
		})
		if err != nil {
			return err
		}
		defer foreign.Close()
		return netlink.LinkSetXdpFd(l, foreign.FD())
	})
	b.refused(t, config("native", in, out), wires[0]+", which is a member of "+in.name+", carries XDP program")
	b.must(t, "ip", "link", "set", "dev", wires[0], "xdp", "off")

	// A bond without members takes the program, and its first member gets it.
	b.here.Must(t, func() error {
		l, err := netlink.LinkByName(wires[0])
		return errors.Join(err, netlink.LinkSetNoMaster(l))
	})
	b.attach(t, config("native", in, out))
	if found, _ := m.finding(in.name, "bond"); !strings.Contains(found, "it has no members") {
		t.Errorf("doctor says %q of a bond without members", found)
	}
	b.here.Must(t, func() error { return in.bond.near.join(wires[0]) })
	b.detach(t)
}

// bondChangesDuringAttach attaches culvert again and again while members leave and join. Each attach succeeds, or is refused with a
// line and leaves nothing. At the end all members run the program.
func bondChangesDuringAttach(t *testing.T, b *bed) {
	in, out := b.pair(t, "veth/backup")
	m := &trial{T: t, bed: b, driver: in.driver, in: in, out: out, mode: "native"}
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for {
			for _, member := range in.bond.near.members {
				err := b.here.Do(func() error {
					l, err := netlink.LinkByName(member)
					if err != nil {
						return err
					}
					return errors.Join(netlink.LinkSetNoMaster(l), in.bond.near.join(member))
				})
				if err != nil {
					stopped <- err
					return
				}
				select {
				case <-stop:
					stopped <- nil
					return
				default:
				}
			}
		}
	}()
	attached := 0
	for range 6 {
		out, err := b.culvert("attach", "-c", file(t, config(m.mode, in, m.out)))
		if err != nil && strings.Count(out, "\n") != 1 {
			t.Errorf("attach: %v: %s", err, out)
		}
		if err == nil {
			attached++
		}
		if out, derr := b.culvert("detach", "--all"); derr != nil || strings.Contains(out, "detached") != (err == nil) {
			t.Errorf("attach: %v, then detach: %v: %s", err, derr, out)
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	t.Logf("attached %d of 6 times", attached)
	m.attachBoth()
	in.prefer(t, in.bond.near.members[0]) // the ends may use different members by now
	if answer := m.forwards(16); answer != "yes" {
		t.Errorf("after members have left and joined: %s", answer)
	}
	b.detach(t)
}
