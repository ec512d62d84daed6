// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// section is the content of .rodata in these tests: a switch that is off, one that is on, and numbers of all sizes.
var section = func() []byte {
	b := make([]byte, 32)
	b[1] = 1
	binary.NativeEndian.PutUint16(b[2:], 0xfffe)
	binary.NativeEndian.PutUint32(b[4:], 0x80000001)
	binary.NativeEndian.PutUint64(b[8:], 0x8000000000000003)
	binary.NativeEndian.PutUint64(b[16:], 1<<40)
	binary.NativeEndian.PutUint32(b[24:], 7)
	return b
}()

// spec returns a collection with one program.
func spec(ins asm.Instructions) *ebpf.CollectionSpec {
	return &ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{".rodata": {
			Name: ".rodata", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(section)), MaxEntries: 1,
			Flags: unix.BPF_F_RDONLY_PROG, Contents: []ebpf.MapKV{{Key: uint32(0), Value: slices.Clone(section)}},
		}},
		Programs: map[string]*ebpf.ProgramSpec{"p": {Name: "p", Type: ebpf.XDP, License: "GPL", Instructions: resolved(ins)}},
	}
}

// resolved gives jumps to labels that begin with a dot their distances, as in programs of a compiler.
func resolved(ins asm.Instructions) asm.Instructions {
	labels, offset := make(map[string]int), 0
	for i := range ins {
		if s := ins[i].Symbol(); s != "" {
			labels[s] = offset
		}
		offset += int(ins[i].Width())
	}
	offset = 0
	for i := range ins {
		offset += int(ins[i].Width())
		if ins[i].OpCode.Class().IsJump() && ins[i].OpCode.JumpOp() != asm.Call && strings.HasPrefix(ins[i].Reference(), ".") {
			ins[i].Offset = int16(labels[ins[i].Reference()] - offset)
			ins[i] = ins[i].WithReference("")
		}
		if strings.HasPrefix(ins[i].Symbol(), ".") {
			ins[i] = ins[i].WithSymbol("")
		}
	}
	return ins
}

// fetch loads a constant of .rodata.
func fetch(to asm.Register, offset int16, size asm.Size) asm.Instructions {
	return asm.Instructions{
		asm.LoadMapValue(to, 0, uint32(offset)).WithReference(".rodata"),
		asm.LoadMem(to, to, 0, size),
	}
}

func folded(t *testing.T, ins asm.Instructions) asm.Instructions {
	t.Helper()
	s := spec(ins)
	if _, err := Constants(s); err != nil {
		t.Fatal(err)
	}
	return s.Programs["p"].Instructions
}

func want(t *testing.T, got, want asm.Instructions) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

func list(parts ...asm.Instructions) asm.Instructions { return slices.Concat(parts...) }

// TestSwitchOff takes out what a switch that is off leads to, and what was prepared for it.
func TestSwitchOff(t *testing.T) {
	got := folded(t, list(
		asm.Instructions{asm.LoadMem(asm.R6, asm.R1, 0, asm.Word), asm.Mov.Imm(asm.R3, 9)},
		fetch(asm.R2, 0, asm.Byte),
		asm.Instructions{
			asm.JEq.Imm(asm.R2, 0, ".off"),
			asm.Mov.Reg(asm.R0, asm.R3),
			asm.Ja.Label(".end"),
			asm.Mov.Imm(asm.R0, 2).WithSymbol(".off"),
			asm.Return().WithSymbol(".end"),
		}))
	want(t, got, asm.Instructions{asm.LoadMem(asm.R6, asm.R1, 0, asm.Word), asm.Mov.Imm(asm.R0, 2), asm.Return()})
}

// TestImmediates puts constants into the instructions that use them, if they fit.
func TestImmediates(t *testing.T) {
	got := folded(t, list(
		asm.Instructions{asm.LoadMem(asm.R6, asm.R1, 0, asm.Word), asm.Mov.Reg(asm.R7, asm.R6)},
		fetch(asm.R2, 24, asm.Word),  // 7
		fetch(asm.R3, 4, asm.Word),   // no signed number of 32 bits
		fetch(asm.R4, 16, asm.DWord), // none of 32 bits
		asm.Instructions{
			asm.LSh.Reg(asm.R6, asm.R2),
			asm.And.Reg(asm.R6, asm.R3),
			asm.Or.Reg32(asm.R7, asm.R3),
			asm.Add.Reg(asm.R6, asm.R4),
			asm.StoreMem(asm.R10, -8, asm.R2, asm.DWord),
			asm.StoreMem(asm.R10, -4, asm.R3, asm.Word),
			asm.JEq.Reg(asm.R6, asm.R2, ".end"),
			asm.Mov.Reg(asm.R6, asm.R7),
			asm.Mov.Reg(asm.R0, asm.R6).WithSymbol(".end"),
			asm.Return(),
		}))
	want(t, got, resolved(asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 0, asm.Word), asm.Mov.Reg(asm.R7, asm.R6),
		asm.Mov.Imm32(asm.R3, -0x7fffffff),
		asm.LoadImm(asm.R4, 1<<40, asm.DWord),
		asm.LSh.Imm(asm.R6, 7),
		asm.And.Reg(asm.R6, asm.R3),
		asm.Or.Imm32(asm.R7, -0x7fffffff),
		asm.Add.Reg(asm.R6, asm.R4),
		{OpCode: asm.OpCode(asm.StClass).SetMode(asm.MemMode).SetSize(asm.DWord), Dst: asm.R10, Offset: -8, Constant: 7},
		asm.StoreImm(asm.R10, -4, -0x7fffffff, asm.Word),
		asm.JEq.Imm(asm.R6, 7, ".end"),
		asm.Mov.Reg(asm.R6, asm.R7),
		asm.Mov.Reg(asm.R0, asm.R6).WithSymbol(".end"),
		asm.Return(),
	}))
}

// TestWrittenVariable leaves a variable alone that is not in a section that nobody can write.
func TestWrittenVariable(t *testing.T) {
	ins := list(fetch(asm.R0, 24, asm.Word), asm.Instructions{asm.Return()})
	s := spec(slices.Clone(ins))
	s.Maps[".rodata"].Flags = 0
	if _, err := Constants(s); err != nil {
		t.Fatal(err)
	}
	want(t, s.Programs["p"].Instructions, ins)
}

// TestLabels has jumps to labels, as programs that are written in Go have.
func TestLabels(t *testing.T) {
	got := folded(t, list(
		asm.Instructions{asm.LoadMem(asm.R6, asm.R1, 0, asm.Word)},
		fetch(asm.R2, 0, asm.Byte),
		asm.Instructions{
			asm.JNE.Imm(asm.R2, 0, "on"),
			asm.LongJump("end"),
			asm.Mov.Imm(asm.R6, 2).WithSymbol("on"),
			asm.Mov.Reg(asm.R0, asm.R6).WithSymbol("end"),
			asm.Return(),
		}))
	want(t, got, asm.Instructions{asm.LoadMem(asm.R6, asm.R1, 0, asm.Word), asm.Mov.Reg(asm.R0, asm.R6), asm.Return()})
}

// TestFunctionNobodyCalls takes out a function with its only call.
func TestFunctionNobodyCalls(t *testing.T) {
	got := folded(t, list(
		fetch(asm.R2, 0, asm.Byte),
		asm.Instructions{
			asm.JNE.Imm(asm.R2, 0, ".on"),
			asm.Mov.Imm(asm.R0, 1),
			asm.Return(),
			asm.Call.Label("f").WithSymbol(".on"),
			asm.Return(),
			asm.Mov.Imm(asm.R0, 3).WithSymbol("f"),
			asm.Return(),
		}))
	// The first instruction stays: the kernel's types of a function are with it.
	want(t, got, asm.Instructions{asm.LoadMapValue(asm.R2, 0, 0).WithReference(".rodata"), asm.Mov.Imm(asm.R0, 1), asm.Return()})
}

// random returns a program of random instructions that ends: its jumps lead forward. All registers have a value from the start, some of
// them constants. The result is a sum of all.
func random(r *rand.Rand) asm.Instructions {
	regs := []asm.Register{asm.R0, asm.R2, asm.R3, asm.R4, asm.R5, asm.R6, asm.R7, asm.R8}
	pick := func() asm.Register { return regs[r.IntN(len(regs))] }
	sizes := map[asm.Size][]int16{asm.Byte: {0, 1, 25}, asm.Half: {2, 0}, asm.Word: {4, 24}, asm.DWord: {8, 16}}
	constantOf := func(to asm.Register) asm.Instructions {
		size := []asm.Size{asm.Byte, asm.Half, asm.Word, asm.DWord}[r.IntN(4)]
		return fetch(to, sizes[size][r.IntN(len(sizes[size]))], size)
	}
	var ins asm.Instructions
	for n, reg := range regs {
		switch {
		case n%2 == 0:
			ins = append(ins, asm.LoadMem(reg, asm.R1, 16, asm.Word)) // the index of the queue, whose value no compiler knows
		default:
			ins = append(ins, constantOf(reg)...)
		}
	}
	alu := []asm.ALUOp{asm.Add, asm.Sub, asm.Mul, asm.Or, asm.And, asm.Xor, asm.Mov, asm.LSh, asm.RSh, asm.ArSh}
	jumps := []asm.JumpOp{asm.JEq, asm.JNE, asm.JGT, asm.JGE, asm.JLT, asm.JLE, asm.JSet, asm.JSGT, asm.JSGE, asm.JSLT, asm.JSLE}
	const steps = 40
	for n := range steps {
		label := fmt.Sprintf(".%d", n)
		start := len(ins)
		to := fmt.Sprintf(".%d", n+1+r.IntN(steps-n))
		switch r.IntN(8) {
		case 0:
			ins = append(ins, constantOf(pick())...)
		case 1:
			ins = append(ins, jumps[r.IntN(len(jumps))].Imm(pick(), int32(r.IntN(9)-4), to))
		case 2:
			ins = append(ins, jumps[r.IntN(len(jumps))].Reg32(pick(), pick(), to))
		case 3:
			ins = append(ins, jumps[r.IntN(len(jumps))].Reg(pick(), pick(), to))
		case 4:
			offset := int16(-8 * (1 + r.IntN(2)))
			ins = append(ins, asm.StoreMem(asm.R10, offset, pick(), asm.DWord), asm.LoadMem(pick(), asm.R10, offset, asm.Word))
		default:
			op := alu[r.IntN(len(alu))]
			a, b := pick(), pick()
			wide := r.IntN(2) == 0
			if op == asm.LSh || op == asm.RSh || op == asm.ArSh {
				ins = append(ins, asm.And.Imm(b, 31))
			}
			switch {
			case wide && r.IntN(2) == 0:
				ins = append(ins, op.Reg(a, b))
			case wide:
				ins = append(ins, op.Imm(a, int32(r.IntN(31))))
			default:
				ins = append(ins, op.Reg32(a, b))
			}
		}
		ins[start] = ins[start].WithSymbol(label)
	}
	ins = append(ins, asm.Mov.Reg(asm.R9, asm.R0).WithSymbol(fmt.Sprintf(".%d", steps)))
	for _, reg := range regs[1:] {
		ins = append(ins, asm.Mul.Imm(asm.R9, 31), asm.Add.Reg(asm.R9, reg))
	}
	return append(ins, asm.Mov.Reg(asm.R0, asm.R9), asm.RSh.Imm(asm.R9, 32), asm.Xor.Reg32(asm.R0, asm.R9), asm.Return())
}

// TestRandomPrograms runs random programs in the kernel as they are and folded. Both have to say the same.
func TestRandomPrograms(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	shorter := 0
	for n := range 300 {
		ins := random(r)
		plain := spec(slices.Clone(ins))
		fold := spec(slices.Clone(ins))
		if _, err := Constants(fold); err != nil {
			t.Fatal(err)
		}
		if len(fold.Programs["p"].Instructions) < len(plain.Programs["p"].Instructions) {
			shorter++
		}
		if a, b := run(t, plain), run(t, fold); a != b {
			t.Fatalf("program %d returns %#x, and %#x when folded: as it is\n%v\nfolded\n%v", n, a, b,
				plain.Programs["p"].Instructions, fold.Programs["p"].Instructions)
		}
	}
	if shorter < 250 {
		t.Errorf("only %d of 300 programs have become shorter", shorter)
	}
}

func run(t *testing.T, spec *ebpf.CollectionSpec) uint32 {
	t.Helper()
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("loading\n%v\n%+v", spec.Programs["p"].Instructions, err)
	}
	defer coll.Close()
	got, _, err := coll.Programs["p"].Test(make([]byte, 64))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestMapsStay has a program find a map that it refers to no more.
func TestMapsStay(t *testing.T) {
	s := spec(list(
		fetch(asm.R2, 0, asm.Byte),
		asm.Instructions{
			asm.JEq.Imm(asm.R2, 0, ".off"),
			asm.LoadMapPtr(asm.R1, 0).WithReference("other"),
			asm.Mov.Imm(asm.R0, 2).WithSymbol(".off"),
			asm.Return(),
		}))
	s.Maps["other"] = &ebpf.MapSpec{Name: "other", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	coll, err := Load(s, ebpf.CollectionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer coll.Close()
	if n := len(s.Programs["p"].Instructions); n != 3 { // the first instruction stays
		t.Errorf("%d instructions: %v", n, s.Programs["p"].Instructions)
	}
	info, err := coll.Programs["p"].Info()
	if err != nil {
		t.Fatal(err)
	}
	if ids, _ := info.MapIDs(); len(ids) != 2 {
		t.Errorf("the program has %d maps, want 2", len(ids))
	}
}
