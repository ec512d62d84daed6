// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"bytes"
	"slices"
	"testing"
)

// OtherFrames returns functions, by description, that carry the packet of an untagged Ethernet frame in another kind of frame,
// or send it to another MAC address. The kernel accepts some of the results.
func OtherFrames() map[string]func(frame []byte) []byte {
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
		"VLAN 0":                tag(0x81, 0, 0, 0),
		"VLAN 0, priority 7":    tag(0x81, 0, 0xe0, 0),
		"VLAN 0 twice":          tag(0x81, 0, 0, 0, 0x81, 0, 0, 0),
		"802.1ad, VLAN 0":       tag(0x88, 0xa8, 0, 0),
		"802.1ad, VLAN 5":       tag(0x88, 0xa8, 0, 5),
		"VLAN 5, VLAN 0":        tag(0x81, 0, 0, 5, 0x81, 0, 0, 0),
		"VLAN 0, VLAN 5":        tag(0x81, 0, 0, 0, 0x81, 0, 0, 5),
		"VLAN 5, VLAN 6":        tag(0x81, 0, 0, 5, 0x81, 0, 0, 6),
		"0x9100":                tag(0x91, 0, 0, 0),
		"SNAP":                  kind(0, 200, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0),
		"PPPoE":                 kind(0x88, 0x64, 0x11, 0, 0, 7, 0, 200, 0, 0x21),
		"MPLS":                  kind(0x88, 0x47, 0, 0, 0x11, 64),
		"MACsec":                kind(0x88, 0xe5, 0, 0, 0, 0, 0, 1, 8, 0),
		"to broadcast":          to(255, 255, 255, 255, 255, 255),
		"to multicast":          to(1, 0, 0x5e, 0, 0, 1),
		"to another host's MAC": to(2, 9, 9, 9, 9, 9),
		"unknown EtherType":     kind(0x88, 0xb5),
	}
}

// CheckPassed makes the test fail unless the program passes a frame to the kernel unchanged and counts it as "pass other".
func CheckPassed(t testing.TB, plane Plane, iface, name string, frame []byte) {
	t.Helper()
	_, before, _ := Counted(t, plane, iface)
	action, out, err := plane.TestRun(frame, iface)
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := Counted(t, plane, iface)
	if action != XDPPass || !bytes.Equal(out, frame) {
		t.Errorf("%s: action %d: %x", name, action, out)
	}
	if after["pass other"] != before["pass other"]+1 {
		t.Errorf("%s: counted %v, then %v", name, before, after)
	}
}
