// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

//go:embed *_bpfel.o
var allObjects embed.FS

// stackLimit is MAX_BPF_STACK, which the frames of a chain of calls share. stackRound is what a frame is rounded up to: 32 bytes
// by Linux 6.1 and by all interpreters, 16 by JIT compilers from 6.8 (check_max_stack_depth).
const (
	stackLimit = 512
	stackRound = 32
)

// stackFrame is what a function takes of the stack, and the functions that it calls.
type stackFrame struct {
	bytes int
	calls map[string]bool
}

// stackFrames reads the frames of a program and its functions. A frame reaches down to the lowest offset from the frame pointer
// that an instruction uses.
func stackFrames(insns asm.Instructions) map[string]*stackFrame {
	frames := map[string]*stackFrame{}
	var f *stackFrame
	pointer := map[asm.Register]bool{} // copies of the frame pointer
	for _, ins := range insns {
		if name := ins.Symbol(); name != "" {
			f = &stackFrame{calls: map[string]bool{}}
			frames[name] = f
			clear(pointer)
		}
		op := ins.OpCode
		low := 0
		switch {
		case ins.IsFunctionCall():
			f.calls[ins.Reference()] = true
		case op.Class().IsLoad() && ins.Src == asm.RFP, op.Class().IsStore() && ins.Dst == asm.RFP:
			low = int(ins.Offset)
		case op.Class().IsALU() && op.ALUOp() == asm.Add && op.Source() == asm.ImmSource && pointer[ins.Dst]:
			low = int(ins.Constant)
		}
		if op.Class().IsALU() || op.Class().IsLoad() {
			pointer[ins.Dst] = op.Class().IsALU() && op.ALUOp() == asm.Mov && op.Source() == asm.RegSource && ins.Src == asm.RFP
		}
		f.bytes = max(f.bytes, -low)
	}
	return frames
}

// deepest returns what the deepest chain of calls from a function takes, and the chain.
func deepest(frames map[string]*stackFrame, name string) (bytes int, chain string) {
	f := frames[name]
	for callee := range f.calls {
		if b, c := deepest(frames, callee); b > bytes || b == bytes && c < chain {
			bytes, chain = b, c
		}
	}
	own := (max(f.bytes, 1) + stackRound - 1) / stackRound * stackRound
	return own + bytes, strings.TrimSuffix(fmt.Sprintf("%s %d, %s", name, f.bytes, chain), ", ")
}

// TestStack: no chain of calls of any object takes more stack than Linux 6.1 allows. The objects are those of both architectures,
// with and without the example, so a change is tried for all of them on any machine.
func TestStack(t *testing.T) {
	names, err := fs.Glob(allObjects, "*.o")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d objects, %v", len(names), err)
	}
	for _, name := range names {
		b, err := allObjects.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(b))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, p := range spec.Programs {
			bytes, chain := deepest(stackFrames(p.Instructions), p.Name)
			t.Logf("%s: %d bytes: %s", name, bytes, chain)
			if bytes > stackLimit {
				t.Errorf("%s: %s takes %d bytes of stack, %d are allowed: %s", name, p.Name, bytes, stackLimit, chain)
			}
		}
	}
}
