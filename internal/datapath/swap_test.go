// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// TestSwapUnderLoad attaches again and again while packets are forwarded from one veth pair to another. Each packet is
// forwarded and counted once.
func TestSwapUnderLoad(t *testing.T) {
	testbed.InNamespace(t)
	in, out := testbed.AddVeth(t, "v0", "v1"), testbed.AddVeth(t, "v2", "v3")
	s := testbed.AddSink(t, "v3")
	configs := []scionplane.Config{scionbed.Config(1, 2), scionbed.Config(2, 3, 1)}
	inst := scionbed.Attach(t, configs[0], "v0", "v2")
	scionbed.Open(t, inst, out)
	snd := testbed.StartSender(t, testbed.Device(t, "v1"), s, scionbed.TransitFrame(t, in, scionbed.Key))
	stop := func() {
		if err := snd.Stop(); err != nil {
			t.Fatalf("sending: %v", err)
		}
	}
	const swaps = 20
	for n := range swaps {
		inst.Close()
		before, err := s.Packets()
		if err != nil {
			t.Fatal(err)
		}
		// Each configuration twice: with the same one maps are shared, with another one they are new.
		inst.Instance, err = datapath.Attach(datapath.Options{Name: "br1", Interfaces: []string{"v0", "v2"}, Parts: scionbed.Parts(configs[n/2%2])})
		if err != nil {
			stop()
			t.Fatal(err)
		}
		if err := s.Await(before + testbed.Window + 1); err != nil {
			t.Errorf("after swap %d: %v", n, err)
			break
		}
	}
	defer inst.Close()
	stop()
	sent := snd.Sent()
	if err := s.Await(sent); err != nil {
		t.Errorf("after the end: %v", err)
	}
	port, by, total := testbed.Counted(t, inst, "v0")
	if arrived, err := s.Packets(); arrived != sent || err != nil {
		t.Errorf("%d packets sent, %d arrived, %v", sent, arrived, err)
	}
	if total != sent || by[scionbed.Forwarded] != sent {
		t.Errorf("%d packets sent, counted %d: %v", sent, total, by)
	}
	for name, n := range port.Losses {
		if n != 0 {
			t.Errorf("%d packets lost: %s", n, name)
		}
	}
	if linkIn, linkOut := scionbed.LinkTraffic(t, inst); linkIn["1"] != sent || linkOut["2"] != sent {
		t.Errorf("%d packets sent, link 1 has received %d, link 2 has sent %d", sent, linkIn["1"], linkOut["2"])
	}
	t.Logf("%d packets through %d swaps", sent, swaps)
}

// TestLossesAreCounted forwards to a veth whose peer drops all frames. Each loss is counted once, also while a generation that
// is not in force is attached to the tracepoints.
func TestLossesAreCounted(t *testing.T) {
	testbed.InNamespace(t)
	in := testbed.AddVeth(t, "v0", "v1")
	out := testbed.AddVeth(t, "v2", "v3") // no XDP program on v3, no GRO
	inst := scionbed.Attach(t, scionbed.Config(1, 2), "v0", "v2")
	scionbed.Open(t, inst, out)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	to := &unix.SockaddrLinklayer{Ifindex: testbed.Device(t, "v1").Index}
	frame := scionbed.TransitFrame(t, in, scionbed.Key)
	var sent uint64
	lose := func() {
		t.Helper()
		for range 10 {
			if err := unix.Sendto(fd, frame, 0, to); err != nil {
				t.Fatal(err)
			}
			sent++
		}
		for end := time.Now().Add(testbed.Patience); ; time.Sleep(time.Millisecond) {
			port, by, _ := testbed.Counted(t, inst, "v0")
			var lost uint64
			for _, n := range port.Losses {
				lost += n
			}
			if by[scionbed.Forwarded] == sent && lost == sent {
				return
			}
			if lost > sent || time.Now().After(end) {
				t.Fatalf("%d sent, counted %v, lost %v", sent, by, port.Losses)
			}
		}
	}
	lose()
	datapath.LeaveDeadGeneration(t, inst.Instance, scionbed.Parts(scionbed.Config(1, 2)), in, out)
	lose()
	inst.Close()
	// An Attach that fails leaves the counting to the generation in force.
	testbed.AddBridge(t, "bridge")
	if _, err := datapath.Attach(datapath.Options{Name: "br1", Interfaces: []string{"v0", "bridge"}, Parts: scionbed.Parts(scionbed.Config(1))}); err == nil {
		t.Fatal("attached to a bridge")
	}
	if inst.Instance, err = datapath.OpenHere("br1"); err != nil {
		t.Fatal(err)
	}
	lose()
	inst.Close()
	inst = scionbed.Attach(t, scionbed.Config(2, 1), "v0", "v2")
	lose()
}
