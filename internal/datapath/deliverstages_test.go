// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"slices"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"culvert/internal/testbed"
)

// wraps are other ways to put the packet of an Ethernet frame into one, by which the kernel may take it in.
func wraps() map[string]func(frame []byte) []byte {
	tag := func(tags ...byte) func([]byte) []byte {
		return func(f []byte) []byte { return slices.Concat(f[:12], tags, f[12:]) }
	}
	kind := func(front ...byte) func([]byte) []byte {
		return func(f []byte) []byte { return slices.Concat(f[:12], front, f[14:]) }
	}
	to := func(mac ...byte) func([]byte) []byte {
		return func(f []byte) []byte { return slices.Concat(mac, f[6:]) }
	}
	return map[string]func([]byte) []byte{
		"VLAN 0":                  tag(0x81, 0, 0, 0),
		"VLAN 0, priority 7":      tag(0x81, 0, 0xe0, 0),
		"VLAN 0 twice":            tag(0x81, 0, 0, 0, 0x81, 0, 0, 0),
		"802.1ad, VLAN 0":         tag(0x88, 0xa8, 0, 0),
		"802.1ad, VLAN 5":         tag(0x88, 0xa8, 0, 5),
		"VLAN 5, VLAN 0":          tag(0x81, 0, 0, 5, 0x81, 0, 0, 0),
		"VLAN 0, VLAN 5":          tag(0x81, 0, 0, 0, 0x81, 0, 0, 5),
		"VLAN 5, VLAN 6":          tag(0x81, 0, 0, 5, 0x81, 0, 0, 6),
		"0x9100":                  tag(0x91, 0, 0, 0),
		"SNAP":                    kind(0, 200, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0),
		"PPPoE":                   kind(0x88, 0x64, 0x11, 0, 0, 7, 0, 200, 0, 0x21),
		"MPLS":                    kind(0x88, 0x47, 0, 0, 0x11, 64),
		"MACsec":                  kind(0x88, 0xe5, 0, 0, 0, 0, 0, 1, 8, 0),
		"to broadcast":            to(255, 255, 255, 255, 255, 255),
		"to multicast":            to(1, 0, 0x5e, 0, 0, 1),
		"to another host's MAC":   to(2, 9, 9, 9, 9, 9),
		"said to be another kind": kind(0x88, 0xb5),
	}
}

// goesOn fails unless a frame goes to the kernel as it is, as nobody's.
func goesOn(t *testing.T, inst *Instance, iface, name string, frame []byte) {
	t.Helper()
	_, before, _ := testbed.Counted(t, inst, iface)
	action, out, err := inst.TestRun(frame, iface)
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := testbed.Counted(t, inst, iface)
	if action != testbed.XDPPass || !bytes.Equal(out, frame) {
		t.Errorf("%s: action %d: %x", name, action, out)
	}
	if after["pass other"] != before["pass other"]+1 {
		t.Errorf("%s: counted %v, then %v", name, before, after)
	}
}

// What the balancer does not read is the kernel's, whatever is in it.
func TestBalanceWrapped(t *testing.T) {
	b := newBalanceBed(t, BalanceOptions{})
	m := b.member(1, 0, "10.0.0.11")
	for _, c := range []struct{ from, to string }{{"203.0.113.7:2000", "192.0.2.1:80"}, {"[2001:db8:7::7]:2000", "[2001:db8::1]:80"}} {
		b.vip(0, c.to, protoTCP, []BalanceMember{m})
		frame := b.packet(c.from, c.to, &layers.TCP{SYN: true}, nil)
		b.sent(frame, "fwd lb-new", m)
		for name, wrap := range wraps() {
			goesOn(t, b.inst, "lb0", name+", to "+c.to, wrap(frame))
		}
	}
}

// What the SCION router does not read is the kernel's, and so the slow path's.
func TestSCIONWrapped(t *testing.T) {
	testbed.InNamespace(t)
	v0 := testbed.AddVeth(t, "v0", "v1")
	inst := mustAttach(t, testConfig(1, 2), "v0")
	openWay(t, inst, v0)
	if err := inst.AddKey(1, testKey); err != nil {
		t.Fatal(err)
	}
	frame := transitFrame(t, v0, testKey)
	if action, _, err := inst.TestRun(frame, "v0"); err != nil || action != testbed.XDPRedirect {
		t.Fatalf("without anything: action %d, %v", action, err)
	}
	for name, wrap := range wraps() {
		goesOn(t, inst, "v0", name, wrap(frame))
	}
}
