// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"culvert/internal/testbed"
)

// patience bounds waiting for what has to come; how long it takes is not measured.
const patience = 60 * time.Second

// sink counts and drops what comes in at an interface.
type sink struct{ count *ebpf.Map }

func addSink(t *testing.T, name string) *sink {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	testbed.AttachProgram(t, name, asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 1 /* XDP_DROP */).WithSymbol("out"),
		asm.Return(),
	})
	return &sink{m}
}

func (s *sink) packets() (n uint64, err error) {
	err = s.count.Lookup(uint32(0), &n)
	return n, err
}

// await waits until that many packets have come.
func (s *sink) await(want uint64) error {
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		n, err := s.packets()
		if err != nil || n >= want {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d packets of %d have come", n, want)
		}
	}
}

// sender sends frames over and over, a window at a time when the last one has come: no queue on the
// way overflows, however slow the machine is.
type sender struct {
	sent atomic.Uint64
	stop atomic.Bool
	done chan error
}

const window = 64

func startSender(t *testing.T, out *net.Interface, frame []byte, s *sink) *sender {
	t.Helper()
	return startSenders(t, out, [][]byte{frame}, s)
}

// startSenders sends several frames in turn.
func startSenders(t *testing.T, out *net.Interface, frames [][]byte, s *sink) *sender {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	to := &unix.SockaddrLinklayer{Ifindex: out.Index}
	snd := &sender{done: make(chan error, 1)}
	go func() {
		defer unix.Close(fd)
		snd.done <- func() error {
			for !snd.stop.Load() {
				if n := snd.sent.Load(); n%window == 0 {
					if err := s.await(n); err != nil {
						return err
					}
					time.Sleep(time.Millisecond) // leaves the CPU to others
				}
				if err := unix.Sendto(fd, frames[snd.sent.Load()%uint64(len(frames))], 0, to); err != nil {
					return err
				}
				snd.sent.Add(1)
			}
			return nil
		}()
	}()
	return snd
}

// TestSwapUnderLoad attaches over and over while packets are forwarded from one veth pair to
// another: every one is counted once and comes out.
func TestSwapUnderLoad(t *testing.T) {
	testbed.InNamespace(t)
	in, out := testbed.AddVeth(t, "v0", "v1"), testbed.AddVeth(t, "v2", "v3")
	s := addSink(t, "v3")
	configs := []Config{testConfig(1, 2), testConfig(2, 3, 1)}
	inst := mustAttach(t, configs[0], "v0", "v2")
	openWay(t, inst, out)
	snd := startSender(t, testbed.Device(t, "v1"), transitFrame(t, in, testKey), s)
	stop := func() {
		snd.stop.Store(true)
		if err := <-snd.done; err != nil {
			t.Fatalf("sending: %v", err)
		}
	}
	const swaps = 20
	for n := range swaps {
		inst.Close()
		before, err := s.packets()
		if err != nil {
			t.Fatal(err)
		}
		// The same configuration twice, then another: both ways of loading.
		inst, err = Attach(Options{Name: "br1", Interfaces: []string{"v0", "v2"}, Parts: []Part{NewSCIONPart(configs[n/2%2])}})
		if err != nil {
			stop()
			t.Fatal(err)
		}
		if err := s.await(before + window + 1); err != nil {
			t.Errorf("after swap %d: %v", n, err)
			break
		}
	}
	defer inst.Close()
	stop()
	sent := snd.sent.Load()
	if err := s.await(sent); err != nil {
		t.Errorf("after the end: %v", err)
	}
	port, by, total := testbed.Counted(t, inst, "v0")
	if arrived, err := s.packets(); arrived != sent || err != nil {
		t.Errorf("%d packets sent, %d arrived, %v", sent, arrived, err)
	}
	if total != sent || by["fwd scion-br-transit"] != sent {
		t.Errorf("%d packets sent, counted %d: %v", sent, total, by)
	}
	for name, n := range port.Losses {
		if n != 0 {
			t.Errorf("%d packets lost: %s", n, name)
		}
	}
	if linkIn, linkOut := linkTraffic(t, inst); linkIn["1"] != sent || linkOut["2"] != sent {
		t.Errorf("%d packets sent, link 1 has received %d, link 2 has sent %d", sent, linkIn["1"], linkOut["2"])
	}
	t.Logf("%d packets through %d swaps", sent, swaps)
}

// TestLossesAreCounted forwards to a device whose far end does not listen: every loss is counted
// once, also while a generation that is not in force is attached to the tracepoints.
func TestLossesAreCounted(t *testing.T) {
	testbed.InNamespace(t)
	in := testbed.AddVeth(t, "v0", "v1")
	out := testbed.AddVeth(t, "v2", "v3") // no XDP program on v3, no GRO
	inst := mustAttach(t, testConfig(1, 2), "v0", "v2")
	openWay(t, inst, out)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	to := &unix.SockaddrLinklayer{Ifindex: testbed.Device(t, "v1").Index}
	frame := transitFrame(t, in, testKey)
	var sent uint64
	lose := func() {
		t.Helper()
		for range 10 {
			if err := unix.Sendto(fd, frame, 0, to); err != nil {
				t.Fatal(err)
			}
			sent++
		}
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			port, by, _ := testbed.Counted(t, inst, "v0")
			var lost uint64
			for _, n := range port.Losses {
				lost += n
			}
			if by["fwd scion-br-transit"] == sent && lost == sent {
				return
			}
			if lost > sent || time.Now().After(end) {
				t.Fatalf("%d sent, counted %v, lost %v", sent, by, port.Losses)
			}
		}
	}
	lose()
	leaveDeadGeneration(t, inst, testConfig(1, 2), in, out)
	lose()
	inst.Close()
	// One that cannot succeed leaves the counting to the one that runs.
	addBridge(t)
	if _, err := Attach(Options{Name: "br1", Interfaces: []string{"v0", "bridge"}, Parts: []Part{NewSCIONPart(testConfig(1))}}); err == nil {
		t.Fatal("attached to a bridge")
	}
	if inst, err = OpenHere("br1"); err != nil {
		t.Fatal(err)
	}
	lose()
	inst.Close()
	inst = mustAttach(t, testConfig(2, 1), "v0", "v2")
	lose()
}
