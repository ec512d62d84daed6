// SPDX-License-Identifier: Apache-2.0

package cbpf_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/cbpf"
)

// frameCount is set lower in a guest, which is ten times as slow.
var frameCount = flag.Int("frames", 2000, "frames for each way to translate; a multiple of 100")

// Verdicts, as the native code stores them.
const (
	matched   = 1
	unmatched = 2
	short     = 3
)

// maxPrograms is for how many verdicts bpf/test/cbpf_test.bpf.c has room, without the first one, which is its own.
const maxPrograms = 511

// loadPause keeps loads apart: kernels that free thousands of programs at once may hang.
const loadPause = 20 * time.Millisecond

// harness runs n translated programs in the kernel.
type harness struct {
	rulesObjects
	n int
}

// variant is a way to translate, by the fields of cbpf.Options.
type variant struct {
	have    int
	far     bool // with Far
	next    int  // the end for Next: 1 is NoMatch, 2 Match, 3 Short, 0 none
	restart bool // with Restart, as the filter translates
	slot    bool // with LoadSlot
}

var variants = []variant{
	{0, false, 0, false, false}, {54, true, 1, false, false}, {0, true, 2, false, false}, {54, false, 3, false, false}, {34, true, 0, false, false},
	{14, false, 1, false, false}, {60, false, 2, false, false}, {60, false, 1, true, false}, {0, false, 0, true, false}, {34, false, 2, true, false},
	{0, false, 2, false, true}, {34, true, 0, false, true},
}

// newHarness translates programs, each in its variant, and loads them as one program.
func newHarness(t testing.TB, programs []cbpf.Program, as func(i int) variant) *harness {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test loads eBPF programs: run it as root")
	}
	if len(programs) > maxPrograms {
		t.Fatalf("%d programs: there is room for %d", len(programs), maxPrograms)
	}
	body, err := rulesBody(programs, as)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := loadRules()
	if err != nil {
		t.Fatal(err)
	}
	run := spec.Programs["run"]
	if run.Instructions, err = cbpf.ReplaceFunction(run.Instructions, "filter_rules", body); err != nil {
		t.Fatal(err)
	}
	c := &harness{n: len(programs)}
	time.Sleep(loadPause)
	if err := spec.LoadAndAssign(&c.rulesObjects, nil); err != nil {
		text := fmt.Sprintf("%+v", err)
		if lines := strings.Split(text, "\n"); len(lines) > 60 {
			text = strings.Join(lines[len(lines)-60:], "\n")
		}
		t.Fatalf("loading: %s", text)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// rulesBody returns a function that runs all programs and stores their verdicts. If the first buffer is too short for have of a
// variant, a translation without it runs.
func rulesBody(programs []cbpf.Program, as func(i int) variant) (asm.Instructions, error) {
	body := asm.Instructions{asm.Mov.Reg(asm.R8, asm.R1), asm.LoadMem(asm.R9, asm.R8, 0, asm.Word)}
	for i, p := range programs {
		v, done := as(i), fmt.Sprintf("done%d", i)
		if v.have > 0 {
			body = append(body, asm.Mov.Reg(asm.R1, asm.R9), asm.Add.Imm(asm.R1, int32(v.have)),
				asm.LoadMem(asm.R2, asm.R8, 4, asm.Word), asm.JGT.Reg(asm.R1, asm.R2, fmt.Sprintf("less%d", i)))
			code, err := ruleBody(p, i, v, done)
			if err != nil {
				return nil, err
			}
			body = append(append(body, code...), asm.Mov.Imm(asm.R0, 0).WithSymbol(fmt.Sprintf("less%d", i)))
			v.have = 0
		}
		code, err := ruleBody(p, i, v, done)
		if err != nil {
			return nil, err
		}
		body = append(append(body, code...), asm.Mov.Imm(asm.R0, 0).WithSymbol(done))
	}
	return append(body, asm.Return()), nil
}

// ruleBody returns the code of program i, which stores its verdict and goes on at done.
func ruleBody(p cbpf.Program, i int, v variant, done string) (asm.Instructions, error) {
	prefix := fmt.Sprintf("p%d_%d", i, v.have)
	o := cbpf.Options{Prefix: prefix, Match: prefix + "match", NoMatch: prefix + "no", Short: prefix + "short",
		Stack: -cbpf.MemorySize, Have: v.have}
	if v.slot {
		o.LoadSlot = -cbpf.MemorySize - 8
	}
	var far asm.Instructions
	if v.far {
		o.Far = &far
	}
	ends := []struct {
		label   string
		verdict int64
	}{{o.NoMatch, unmatched}, {o.Match, matched}, {o.Short, short}}
	if v.next != 0 {
		o.Next = ends[v.next-1].label
		ends[0], ends[v.next-1] = ends[v.next-1], ends[0]
	}
	if v.restart {
		again := o
		again.Prefix, again.Next, again.FarOnly = prefix+"f", "", true
		code, err := p.Translate(again)
		if err != nil {
			return nil, fmt.Errorf("program %d: %w", i, err)
		}
		o.Restart = prefix + "again"
		far = append(asm.Instructions{asm.Mov.Imm(asm.R0, 0).WithSymbol(o.Restart)}, code...)
	}
	code, err := p.Translate(o)
	if err != nil {
		return nil, fmt.Errorf("program %d: %w", i, err)
	}
	if !slices.ContainsFunc(code, func(i asm.Instruction) bool { return o.Restart != "" && i.Reference() == o.Restart }) && v.restart {
		far = nil
	}
	all := slices.Concat(code, far)
	for _, e := range ends {
		used := slices.ContainsFunc(all, func(i asm.Instruction) bool { return i.Reference() == e.label })
		if used || o.Next == e.label && fallsThrough(code) {
			code = append(code,
				asm.LoadMapValue(asm.R1, 0, uint32(1+i)).WithReference(".bss").WithSymbol(e.label),
				asm.StoreImm(asm.R1, 0, e.verdict, asm.Byte), asm.Ja.Label(done))
		}
	}
	return append(code, far...), nil
}

// fallsThrough tells whether execution can reach the end of the code.
func fallsThrough(insns asm.Instructions) bool {
	if len(insns) == 0 {
		return true
	}
	last := insns[len(insns)-1].OpCode
	return !last.Class().IsJump() || last.JumpOp() != asm.Ja
}

// linear returns the verdicts on a frame whose first buffer has first bytes. 0 stands for as many as the kernel puts there; kernels
// before 6.18 accept no other number.
func (c *harness) linear(t testing.TB, frame []byte, first int) []byte {
	t.Helper()
	var v [maxPrograms + 1]byte
	if err := c.Verdicts.Set(v); err != nil {
		t.Fatal(err)
	}
	o := ebpf.RunOptions{Data: frame}
	if first > 0 {
		o.Context = bpfobj.XDPMD{DataEnd: uint32(first)}
	}
	if _, err := c.Run.Run(&o); err != nil {
		t.Fatalf("running %d bytes, %d in the first buffer: %v", len(frame), first, err)
	}
	if err := c.Verdicts.Get(&v); err != nil {
		t.Fatal(err)
	}
	if v[0] != 0x80 {
		t.Fatalf("the program has not run: %#x", v[0])
	}
	return v[1 : 1+c.n]
}

// judge returns the verdicts on a frame.
func (c *harness) judge(t testing.TB, frame []byte) []byte {
	t.Helper()
	return c.linear(t, frame, 0)
}
