// SPDX-License-Identifier: Apache-2.0

package scionplane_test

import (
	"encoding/binary"
	"testing"

	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// TestChecksumsOfSCION checks the checksums of forwarded packets for all values of a word of the payload.
func TestChecksumsOfSCION(t *testing.T) {
	testbed.InNamespace(t)
	in := testbed.AddVeth(t, "a0", "a1")
	out := testbed.AddVeth(t, "b0", "b1")
	inst := scionbed.Attach(t, scionbed.Config(1, 2), "a0", "b0")
	scionbed.Open(t, inst, out)
	frame := scionbed.SizedTransitFrame(t, in, scionbed.Key, 64)
	payload := len(frame) - 2
	testbed.EachUint16(t, func(n uint16) {
		binary.BigEndian.PutUint16(frame[payload:], n)
		udp := frame[34:]
		udp[6], udp[7] = 0, 0
		size := binary.BigEndian.AppendUint16(nil, uint16(len(udp)))
		check := ^testbed.OnesSum(frame[26:34], []byte{0, 17}, size, udp)
		if check == 0 {
			check = 0xffff
		}
		binary.BigEndian.PutUint16(udp[6:], check)
		action, after, err := inst.TestRunIndex(frame, in.Index)
		if err != nil || action != testbed.XDPRedirect {
			t.Fatalf("action %d, %v", action, err)
		}
		testbed.CheckIPv4Sum(t, after[14:])
		testbed.CheckL4Sum(t, after[14:], 6)
	})
}

// TestSCIONWrapped checks that the programs pass frames up whose encapsulation the SCION router does not read.
func TestSCIONWrapped(t *testing.T) {
	testbed.InNamespace(t)
	v0 := testbed.AddVeth(t, "v0", "v1")
	inst := scionbed.Attach(t, scionbed.Config(1, 2), "v0")
	scionbed.Open(t, inst, v0)
	if err := inst.AddKey(1, scionbed.Key); err != nil {
		t.Fatal(err)
	}
	frame := scionbed.TransitFrame(t, v0, scionbed.Key)
	if action, _, err := inst.TestRun(frame, "v0"); err != nil || action != testbed.XDPRedirect {
		t.Fatalf("without encapsulation: action %d, %v", action, err)
	}
	for name, wrap := range testbed.OtherFrames() {
		testbed.CheckPassed(t, inst, "v0", name, wrap(frame))
	}
}
