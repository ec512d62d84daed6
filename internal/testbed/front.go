// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// FrontProgram returns a program to put in front of another one, and the program array through which it calls that one. It
// counts packets in the first entry of counts, an array of 64-bit numbers. It drops packets while the program array is empty.
func FrontProgram(t testing.TB, counts *ebpf.Map) (prog *ebpf.Program, rest *ebpf.Map) {
	t.Helper()
	rest, err := ebpf.NewMap(&ebpf.MapSpec{Name: "rest", Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "front", Type: ebpf.XDP, AttachType: ebpf.AttachXDP, Flags: unix.BPF_F_XDP_HAS_FRAGS, License: "Apache-2.0",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, counts.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "on"),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("on"),
			asm.LoadMapPtr(asm.R2, rest.FD()),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, XDPDrop),
			asm.Return(),
		},
	})
	if err != nil {
		rest.Close()
		t.Fatal(err)
	}
	return prog, rest
}
