// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"testing"

	"culvert/internal/testbed"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// xdpAborted is the verdict XDP_ABORTED.
const xdpAborted = 0

// loadXDP loads a program written in the test.
func loadXDP(t *testing.T, flags uint32, code asm.Instructions) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.XDP,
		AttachType:   ebpf.AttachXDP,
		Flags:        flags,
		License:      "Dual BSD/GPL",
		Instructions: code,
	})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// Offsets into struct xdp_md.
const (
	mdData    = 0
	mdDataEnd = 4
	mdIngress = 12
)

// wantLength begins a program that returns XDP_DROP unless the packet has exactly n bytes. It leaves the context in R6 and
// the packet in R2.
func wantLength(n int32) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R1, mdData, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, mdDataEnd, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, n),
		asm.JNE.Reg(asm.R4, asm.R3, "drop"),
		asm.JGT.Reg(asm.R4, asm.R3, "drop"),
	}
}

// pass ends a program with XDP_PASS, or with XDP_DROP at the label "drop".
func pass() asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R0, XDPPass),
		asm.Return(),
		asm.Mov.Imm(asm.R0, XDPDrop).WithSymbol("drop"),
		asm.Return(),
	}
}

// Each program passes a packet only if it is as it was sent, and then modifies it. The last verdict of a run with thousands
// of packets is XDP_DROP unless each packet was restored.
func TestCostRestoresThePacket(t *testing.T) {
	testbed.NeedRoot(t)
	const length, at = 100, 20
	modifications := map[string]asm.Instructions{
		"a byte counted down": {
			asm.LoadMem(asm.R5, asm.R2, at, asm.Byte),
			asm.JNE.Imm(asm.R5, 64, "drop"),
			asm.Sub.Imm(asm.R5, 1),
			asm.StoreMem(asm.R2, at, asm.R5, asm.Byte),
		},
		"headroom taken":    adjust(asm.FnXdpAdjustHead, -20),
		"headroom given":    adjust(asm.FnXdpAdjustHead, 20),
		"tail cut":          adjust(asm.FnXdpAdjustTail, -30),
		"tail grown":        adjust(asm.FnXdpAdjustTail, 30),
		"metadata in front": adjust(asm.FnXdpAdjustMeta, -8),
	}
	frame := make([]byte, length)
	frame[at] = 64
	for name, code := range modifications {
		for kind, flags := range map[string]uint32{"": 0, ", multi-buffer": unix.BPF_F_XDP_HAS_FRAGS} {
			t.Run(name+kind, func(t *testing.T) {
				var all asm.Instructions
				all = append(all, wantLength(length)...)
				all = append(all, code...)
				all = append(all, pass()...)
				prog := loadXDP(t, flags, all)
				err := OnThread(func() error {
					if err := Pin(LastCPU()); err != nil {
						return err
					}
					trial, err := newTrial(Subject{Name: name, Program: prog, Frames: [][]byte{frame}, Verdict: XDPPass}, CostOptions{CPU: LastCPU()})
					if err != nil {
						return err
					}
					defer trial.close()
					if _, verdict, err := trial.run(trial.with, 0, 5000); err != nil || verdict != XDPPass {
						return fmt.Errorf("verdict %d after 5000 runs, error %w: the packet was not restored", verdict, err)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				// Without the wrapper the program must see its own modification, or the test shows nothing.
				if verdict, err := prog.Run(&ebpf.RunOptions{Data: frame, Repeat: 5000}); err != nil || verdict != XDPDrop {
					t.Errorf("verdict %d without the wrapper, error %v", verdict, err)
				}
			})
		}
	}
}

// adjust calls a helper that moves one end of the packet; a failure ends in XDP_DROP.
func adjust(fn asm.BuiltinFunc, by int32) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, by),
		fn.Call(),
		asm.JNE.Imm(asm.R0, 0, "drop"),
	}
}

// Every frame takes its turn: the program passes only frames with the numbers 0 to 6, and counts each number in a map.
func TestCostUsesEveryFrame(t *testing.T) {
	testbed.NeedRoot(t)
	const frames, rounds, repeat = 7, 3, 1000
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: frames})
	if err != nil {
		t.Fatal(err)
	}
	defer counts.Close()
	code := append(wantLength(138),
		asm.LoadMem(asm.R5, asm.R2, tagAt, asm.Word),
		asm.HostTo(asm.BE, asm.R5, asm.Word),
		asm.StoreMem(asm.RFP, -4, asm.R5, asm.Word),
		asm.LoadMapPtr(asm.R1, counts.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "drop"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
	)
	prog := loadXDP(t, unix.BPF_F_XDP_HAS_FRAGS, append(code, pass()...))
	subject := Subject{Name: "count", Program: prog, Frames: taggedFrames(frames, 138), Verdict: XDPPass}
	o := CostOptions{Rounds: rounds, Repeat: repeat, CPU: LastCPU()}
	rows, err := Cost(context.Background(), o, subject)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 1 || rows[0].Frames != frames || rows[0].Gross.Min <= 0 || rows[0].Net.Min > rows[0].Net.Max {
		t.Errorf("rows %+v", rows)
	}
	for i := range uint32(frames) {
		var got uint64
		if err := counts.Lookup(i, &got); err != nil {
			t.Fatal(err)
		}
		// One use is the check of the verdict. A run that a signal interrupts starts again, so there may be more.
		if want := uint64(1 + rounds*repeat/frames); got < want {
			t.Errorf("frame %d was used %d times, want %d", i, got, want)
		}
	}
}

func TestCostRefusesTheWrongVerdict(t *testing.T) {
	testbed.NeedRoot(t)
	prog := loadXDP(t, 0, asm.Instructions{asm.Mov.Imm(asm.R0, xdpAborted), asm.Return()})
	subject := Subject{Name: "abort", Program: prog, Frames: taggedFrames(1, 60), Verdict: XDPPass}
	if _, err := Cost(context.Background(), CostOptions{CPU: LastCPU()}, subject); err == nil {
		t.Error("accepted")
	}
}

// The packets of a subject seem to arrive on the device in From: the program passes no others.
func TestCostComesFromTheDevice(t *testing.T) {
	testbed.NeedRoot(t)
	netns := testNetns(t)
	end, peer := testWire(t, netns, netns, "cvg0", "cvg1")
	sink, err := NewSink(end, SinkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	prog := loadXDP(t, 0, append(asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, mdIngress, asm.Word),
		asm.JNE.Imm(asm.R2, int32(end.Index), "drop"),
	}, pass()...))
	measure := func(from End) error {
		subject := Subject{Name: "device", Program: prog, Frames: taggedFrames(1, 60), From: from, Verdict: XDPPass}
		_, err := Cost(context.Background(), CostOptions{Rounds: 1, Repeat: 10, CPU: LastCPU()}, subject)
		return err
	}
	if err := measure(end); err != nil {
		t.Error(err)
	}
	for _, other := range []End{{}, peer} {
		if err := measure(other); err == nil {
			t.Errorf("%q taken for %s", other.Name, end.Name)
		}
	}
}

// work is a program that counts down from n.
func work(t *testing.T, n int32) *ebpf.Program {
	t.Helper()
	return loadXDP(t, 0, asm.Instructions{
		asm.Mov.Imm(asm.R1, n),
		asm.Sub.Imm(asm.R1, 1).WithSymbol("again"),
		asm.JNE.Imm(asm.R1, 0, "again"),
		asm.Mov.Imm(asm.R0, XDPPass),
		asm.Return(),
	})
}

func TestCostTellsMoreWorkFromLess(t *testing.T) {
	testbed.NeedRoot(t)
	subject := func(name string, n int32) Subject {
		return Subject{Name: name, Program: work(t, n), Frames: taggedFrames(1, 138), Verdict: XDPPass}
	}
	o := CostOptions{Rounds: 9, Repeat: 5000, CPU: LastCPU()}
	rows, err := Cost(context.Background(), o, subject("little", 20), subject("much", 5000))
	if err != nil {
		t.Fatal(err)
	}
	if little, much := rows[0].Net.Median, rows[1].Net.Median; much < 10*little {
		t.Errorf("250 times the work costs %.1f ns instead of %.1f", much, little)
	}
}
