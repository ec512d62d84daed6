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

// corners are programs that random ones seldom are: where one wrong bit in the translation shows.
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

	// Half a word, in network order, masked and compared with what does not fit.
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
	// Values of different orders meet at a comparison, or the mask before it.
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
	// Shifts by X, around the length of a word.
	for _, x := range []uint32{0, 1, 31, 32, 33, 63, 64, 65, 0x80000000, 0xffffffff} {
		for _, op := range []bpf.ALUOp{bpf.ALUOpShiftLeft, bpf.ALUOpShiftRight} {
			add(fmt.Sprintf("constant shift %d by %#x", op, x), ld(1, 14), imm(bpf.RegX, x), imm(bpf.RegA, 0xffffffff), aluX(op),
				jump(bpf.JumpEqual, 0, 1, 0))
			// The same X, as no one but the program can know it.
			add(fmt.Sprintf("shift %d by %#x", op, x), ld(4, 14), alu(bpf.ALUOpAnd, 0), alu(bpf.ALUOpOr, x), bpf.TAX{},
				ld(4, 14), alu(bpf.ALUOpOr, 0x80000001), aluX(op), jump(bpf.JumpEqual, 0, 1, 0))
		}
		// Division and remainder by X.
		for _, op := range []bpf.ALUOp{bpf.ALUOpDiv, bpf.ALUOpMod} {
			add(fmt.Sprintf("%d by %#x", op, x), imm(bpf.RegX, x), ld(4, 14), aluX(op), jump(bpf.JumpBitsSet, 1, 0, 1))
		}
		add(fmt.Sprintf("[x + %#x]", x), imm(bpf.RegX, x), bpf.LoadIndirect{Off: 14, Size: 1}, jump(bpf.JumpBitsSet, 1, 0, 1))
		add(fmt.Sprintf("[%#x + x]", x), imm(bpf.RegX, 15), bpf.LoadIndirect{Off: min(x, 0xffdfffff), Size: 2},
			jump(bpf.JumpBitsSet, 1, 0, 1))
	}
	// Offsets that only fit if they wrap.
	for _, x := range []uint32{0xfffffff2, 0xfffffff3, 0xffffffff} {
		add(fmt.Sprintf("[x + 14] around %#x", x), imm(bpf.RegX, x), bpf.LoadIndirect{Off: 14, Size: 1})
	}
	// X is small on one way and anything on the other.
	add("X from two ways", ld(2, 14), bpf.TAX{}, ld(1, 16), jump(bpf.JumpBitsSet, 1, 0, 1), imm(bpf.RegX, 2),
		bpf.LoadIndirect{Off: 14, Size: 2}, jump(bpf.JumpBitsSet, 1, 0, 1))
	add("X near on one way", bpf.LoadMemShift{Off: 14}, ld(1, 16), jump(bpf.JumpBitsSet, 1, 0, 1),
		bpf.LoadIndirect{Off: 14, Size: 4}, bpf.LoadIndirect{Off: 16, Size: 2}, jump(bpf.JumpBitsSet, 1, 0, 1))
	add("X after the length", bpf.LoadMemShift{Off: 14}, bpf.LoadIndirect{Off: 14, Size: 4}, bpf.LoadExtension{Num: bpf.ExtLen},
		bpf.LoadIndirect{Off: 14, Size: 2}, jump(bpf.JumpBitsSet, 1, 0, 1))
	add("A from two ways", ld(1, 16), jump(bpf.JumpBitsSet, 1, 0, 2), imm(bpf.RegA, 3), bpf.Jump{Skip: 1}, ld(2, 14), bpf.TAX{},
		bpf.LoadIndirect{Off: 14, Size: 2}, jump(bpf.JumpBitsSet, 1, 0, 1))
	// What is never written is 0.
	add("M of nothing", bpf.LoadScratch{Dst: bpf.RegA, N: 15}, jump(bpf.JumpEqual, 0, 0, 1))
	add("M on one way", ld(1, 14), jump(bpf.JumpBitsSet, 1, 0, 1), bpf.StoreScratch{Src: bpf.RegA, N: 3},
		bpf.LoadScratch{Dst: bpf.RegX, N: 3}, bpf.TXA{}, jump(bpf.JumpEqual, 0, 0, 1))
	add("A and X of nothing", aluX(bpf.ALUOpAdd), jump(bpf.JumpEqual, 0, 0, 1))
	add("minus", ld(4, 14), bpf.NegateA{}, jump(bpf.JumpGreaterThan, 0x80000000, 0, 1))
	add("ret a", ld(4, 14), alu(bpf.ALUOpAnd, 0xff00), bpf.RetA{})
	add("a load for nothing", ld(4, 60), imm(bpf.RegA, 1), jump(bpf.JumpEqual, 1, 0, 1))
	return names, programs
}

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
			c := newCourt(t, programs[start:end], func(i int) variant { return variants[(i+round)%len(variants)] })
			for _, frame := range frames {
				compare(t, names[start:end], judges[start:end], frame, c.judge(t, frame))
			}
		}
	}
}

// A load is Short exactly if it goes beyond the end of the frame, also where its value is of no use.
func TestShort(t *testing.T) {
	// The verifier follows each constant X to the end: few programs at a time.
	for _, first := range []uint32{0, 12, 30, 50, 1000} {
		var programs []cbpf.Program
		for off := first; off < first+20; off++ {
			programs = append(programs, cbpf.Program{{Op: 0x30, K: off}, ret(1)}, cbpf.Program{{Op: 0x20, K: off}, ret(0)},
				cbpf.Program{{Op: 0x01, K: off}, {Op: 0x48, K: 1}, ret(1)})
		}
		c := newCourt(t, programs, func(i int) variant { return variants[(i+int(first))%len(variants)] })
		for n := cbpftest.MinFrame; n < 1100; n++ {
			if n == 100 {
				n = 990
			}
			for i, said := range c.judge(t, make([]byte, n)) {
				want := []byte{matched, unmatched, matched}[i%3]
				if end := int(first) + i/3 + []int{1, 4, 3}[i%3]; end > n {
					want = short
				}
				if said != want {
					t.Fatalf("program %d from %d on %d bytes: %d, not %d\n%s", i, first, n, said, want, programs[i])
				}
			}
		}
	}
}

// Many rules that read at many places are not too much for the verifier.
func TestManyPlaces(t *testing.T) {
	var programs []cbpf.Program
	for off := range uint32(400) {
		programs = append(programs, cbpf.Program{{Op: 0x30, K: 5 * off}, {Op: 0x15, K: 1, Jf: 1}, ret(1), ret(0)})
	}
	c := newCourt(t, programs, func(int) variant { return variant{have: 54, far: true, next: 1} })
	frame := make([]byte, 1500)
	frame[700] = 1
	for i, said := range c.judge(t, frame) {
		if want := i == 140; (said == matched) != want || said == short != (5*i >= len(frame)) {
			t.Errorf("byte %d: %d", 5*i, said)
		}
	}
}
