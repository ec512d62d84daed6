// SPDX-License-Identifier: Apache-2.0

package cbpf_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/net/bpf"

	"culvert/internal/filter/cbpf"
	"culvert/internal/filter/cbpf/cbpftest"
	"culvert/internal/filter/pcap"
)

// corners returns programs at the edges of what the translation optimizes, which random programs seldom meet.
func corners(t *testing.T) (names []string, programs []cbpf.Program) {
	t.Helper()
	add := func(name string, insns ...bpf.Instruction) {
		insns = append(insns, bpf.RetConstant{Val: 1}, bpf.RetConstant{Val: 0})
		p, err := bpf.Assemble(insns)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		names, programs = append(names, name), append(programs, p)
	}
	ld := func(size int, off uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: off, Size: size} }
	alu := func(op bpf.ALUOp, k uint32) bpf.Instruction { return bpf.ALUOpConstant{Op: op, Val: k} }
	aluX := func(op bpf.ALUOp) bpf.Instruction { return bpf.ALUOpX{Op: op} }
	jump := func(c bpf.JumpTest, k uint32, yes, no uint8) bpf.Instruction {
		return bpf.JumpIf{Cond: c, Val: k, SkipTrue: yes, SkipFalse: no}
	}
	imm := func(dst bpf.Register, k uint32) bpf.Instruction { return bpf.LoadConstant{Dst: dst, Val: k} }

	// Half-words in network order, masked and compared with constants that do not fit into 16 bits.
	for _, k := range []uint32{0x10000, 0x10008, 0x80000, 0x10800, 0x108, 0x800, 0xffff, 0xffffffff, 0xffff0800} {
		add(fmt.Sprintf("half equal %#x", k), ld(2, 14), jump(bpf.JumpEqual, k, 0, 1))
		add(fmt.Sprintf("half any of %#x", k), ld(2, 14), jump(bpf.JumpBitsSet, k, 0, 1))
		add(fmt.Sprintf("half above %#x", k), ld(2, 14), jump(bpf.JumpGreaterThan, k, 0, 1))
		for _, op := range []bpf.ALUOp{bpf.ALUOpAnd, bpf.ALUOpOr, bpf.ALUOpXor} {
			for _, want := range []uint32{0x800, 0x8, 0x10800, 0x10008, 0, 0xffff, 0xffff0008} {
				add(fmt.Sprintf("half op %d %#x equal %#x", op, k, want), ld(2, 14), alu(op, k),
					jump(bpf.JumpEqual, want, 0, 1))
			}
		}
		add(fmt.Sprintf("word xor %#x", k), ld(4, 12), alu(bpf.ALUOpXor, k), jump(bpf.JumpEqual, 0x800^k, 0, 1))
	}
	// Two paths reach a comparison, or the mask before it, with values of different orders.
	for _, sizes := range [][2]int{{2, 4}, {4, 2}, {2, 1}, {1, 4}, {2, 0}, {4, 0}} {
		second := imm(bpf.RegA, 8)
		if sizes[1] > 0 {
			second = ld(sizes[1], 14)
		}
		for _, k := range []uint32{8, 0x800, 0x8000000, 0x80000, 0} {
			add(fmt.Sprintf("%d and %d meet, equal %#x", sizes[0], sizes[1], k), ld(1, 18), jump(bpf.JumpBitsSet, 1, 0, 2),
				ld(sizes[0], 14), bpf.Jump{Skip: 1}, second, jump(bpf.JumpEqual, k, 0, 1))
			add(fmt.Sprintf("%d and %d meet, mask %#x", sizes[0], sizes[1], k), ld(1, 18), jump(bpf.JumpBitsSet, 1, 0, 2),
				ld(sizes[0], 14), bpf.Jump{Skip: 1}, second, alu(bpf.ALUOpAnd, k|0xff00), jump(bpf.JumpEqual, k, 0, 1))
		}
	}
	// Shifts by X up to the length of a word and beyond it, divisions by X, loads relative to X.
	for _, x := range []uint32{0, 1, 31, 32, 33, 63, 64, 65, 0x80000000, 0xffffffff} {
		for _, op := range []bpf.ALUOp{bpf.ALUOpShiftLeft, bpf.ALUOpShiftRight} {
			add(fmt.Sprintf("constant shift %d by %#x", op, x), ld(1, 14), imm(bpf.RegX, x), imm(bpf.RegA, 0xffffffff), aluX(op),
				jump(bpf.JumpEqual, 0, 1, 0))
			// The same X, but not known at translation time.
			add(fmt.Sprintf("shift %d by %#x", op, x), ld(4, 14), alu(bpf.ALUOpAnd, 0), alu(bpf.ALUOpOr, x), bpf.TAX{},
				ld(4, 14), alu(bpf.ALUOpOr, 0x80000001), aluX(op), jump(bpf.JumpEqual, 0, 1, 0))
		}
		for _, op := range []bpf.ALUOp{bpf.ALUOpDiv, bpf.ALUOpMod} {
			add(fmt.Sprintf("%d by %#x", op, x), imm(bpf.RegX, x), ld(4, 14), aluX(op), jump(bpf.JumpBitsSet, 1, 0, 1))
		}
		add(fmt.Sprintf("[x + %#x]", x), imm(bpf.RegX, x), bpf.LoadIndirect{Off: 14, Size: 1}, jump(bpf.JumpBitsSet, 1, 0, 1))
		add(fmt.Sprintf("[%#x + x]", x), imm(bpf.RegX, 15), bpf.LoadIndirect{Off: min(x, 0xffdfffff), Size: 2},
			jump(bpf.JumpBitsSet, 1, 0, 1))
	}
	// Offsets that are within the packet only if they wrap around.
	for _, x := range []uint32{0xfffffff2, 0xfffffff3, 0xffffffff} {
		add(fmt.Sprintf("[x + 14] around %#x", x), imm(bpf.RegX, x), bpf.LoadIndirect{Off: 14, Size: 1})
	}
	// On one path X is small or regNear is set, on the other one not.
	add("X from two paths", ld(2, 14), bpf.TAX{}, ld(1, 16), jump(bpf.JumpBitsSet, 1, 0, 1), imm(bpf.RegX, 2),
		bpf.LoadIndirect{Off: 14, Size: 2}, jump(bpf.JumpBitsSet, 1, 0, 1))
	add("X near on one path", bpf.LoadMemShift{Off: 14}, ld(1, 16), jump(bpf.JumpBitsSet, 1, 0, 1),
		bpf.LoadIndirect{Off: 14, Size: 4}, bpf.LoadIndirect{Off: 16, Size: 2}, jump(bpf.JumpBitsSet, 1, 0, 1))
	add("X after the length", bpf.LoadMemShift{Off: 14}, bpf.LoadIndirect{Off: 14, Size: 4}, bpf.LoadExtension{Num: bpf.ExtLen},
		bpf.LoadIndirect{Off: 14, Size: 2}, jump(bpf.JumpBitsSet, 1, 0, 1))
	add("A from two paths", ld(1, 16), jump(bpf.JumpBitsSet, 1, 0, 2), imm(bpf.RegA, 3), bpf.Jump{Skip: 1}, ld(2, 14), bpf.TAX{},
		bpf.LoadIndirect{Off: 14, Size: 2}, jump(bpf.JumpBitsSet, 1, 0, 1))
	// A word or a register that was not written is 0.
	add("M not written", bpf.LoadScratch{Dst: bpf.RegA, N: 15}, jump(bpf.JumpEqual, 0, 0, 1))
	add("M written on one path", ld(1, 14), jump(bpf.JumpBitsSet, 1, 0, 1), bpf.StoreScratch{Src: bpf.RegA, N: 3},
		bpf.LoadScratch{Dst: bpf.RegX, N: 3}, bpf.TXA{}, jump(bpf.JumpEqual, 0, 0, 1))
	add("A and X not written", aluX(bpf.ALUOpAdd), jump(bpf.JumpEqual, 0, 0, 1))
	add("minus", ld(4, 14), bpf.NegateA{}, jump(bpf.JumpGreaterThan, 0x80000000, 0, 1))
	add("ret a", ld(4, 14), alu(bpf.ALUOpAnd, 0xff00), bpf.RetA{})
	add("a load whose value is not used", ld(4, 60), imm(bpf.RegA, 1), jump(bpf.JumpEqual, 1, 0, 1))
	return names, programs
}

// TestCorners compares the verdicts of the programs of corners with libpcap's.
func TestCorners(t *testing.T) {
	names, programs := corners(t)
	judges := make([]*pcap.Judge, len(programs))
	for i, p := range programs {
		var err error
		if judges[i], err = pcap.NewJudge(cbpftest.WithZeroes(p)); err != nil {
			t.Fatalf("%s: %v", names[i], err)
		}
	}
	rng := rand.New(rand.NewPCG(10, 10))
	var frames [][]byte
	for _, head := range [][]byte{{8, 0}, {0, 8}, {0, 0, 8, 0}, {8, 0, 0, 0}, {0, 0, 0, 8}, {0, 8, 0, 0}, {0, 0}, {0xff, 0xff},
		{0xff, 0xff, 0xff, 0xff}, {1, 8}, {0x7f, 0xff}, {0, 20}, {0x80, 0, 0, 0}} {
		for range 10 {
			frame := cbpftest.Garbage(rng)
			frames = append(frames, append(append(append([]byte{}, frame[:14]...), head...), frame[14:]...))
		}
	}
	for round := range 2 {
		for start := 0; start < len(programs); start += 250 {
			end := min(start+250, len(programs))
			c := newHarness(t, programs[start:end], func(i int) variant { return variants[(i+round)%len(variants)] })
			for _, frame := range frames {
				compare(t, names[start:end], judges[start:end], frame, c.judge(t, frame))
			}
		}
	}
}

// TestShort checks that the verdict is short exactly if a load reads beyond the end of the frame, even if its value is not used.
func TestShort(t *testing.T) {
	type load struct {
		program cbpf.Program
		end     int  // of the bytes that it reads
		verdict byte // on frames that are long enough
	}
	// The verifier walks through what follows once for each constant X, so load few programs at a time.
	for _, first := range []uint32{0, 12, 30, 50, 1000} {
		var loads []load
		var programs []cbpf.Program
		for off := first; off < first+20; off++ {
			end := int(off)
			loads = append(loads,
				load{cbpf.Program{{Op: 0x30, K: off}, ret(1)}, end + 1, matched},                   // ldb [off]
				load{cbpf.Program{{Op: 0x20, K: off}, ret(0)}, end + 4, unmatched},                 // ld [off]
				load{cbpf.Program{{Op: 0x01, K: off}, {Op: 0x48, K: 1}, ret(1)}, end + 3, matched}, // ldx #off; ldh [x + 1]
			)
		}
		for _, l := range loads {
			programs = append(programs, l.program)
		}
		c := newHarness(t, programs, func(i int) variant { return variants[(i+int(first))%len(variants)] })
		for n := cbpftest.MinFrame; n < 1100; n++ {
			if n == 100 {
				n = 990
			}
			for i, got := range c.judge(t, make([]byte, n)) {
				want := loads[i].verdict
				if loads[i].end > n {
					want = short
				}
				if got != want {
					t.Fatalf("%d bytes: verdict %d, want %d, of\n%s", n, got, want, programs[i])
				}
			}
		}
	}
}

// TestManyOffsets loads many rules that read at different offsets. They are not too much for the verifier.
func TestManyOffsets(t *testing.T) {
	var programs []cbpf.Program
	for off := range uint32(400) {
		programs = append(programs, cbpf.Program{{Op: 0x30, K: 5 * off}, {Op: 0x15, K: 1, Jf: 1}, ret(1), ret(0)})
	}
	c := newHarness(t, programs, func(int) variant { return variant{have: 54, far: true, next: 1} })
	frame := make([]byte, 1500)
	frame[700] = 1
	for i, got := range c.judge(t, frame) {
		want := byte(unmatched)
		switch {
		case 5*i == 700:
			want = matched
		case 5*i >= len(frame):
			want = short
		}
		if got != want {
			t.Errorf("byte %d: verdict %d, want %d", 5*i, got, want)
		}
	}
}
