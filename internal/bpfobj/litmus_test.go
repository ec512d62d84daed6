// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"bytes"
	"embed"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

/*
bpf/core/seqcount.h and lock.h argue that a reader never sees half of a write, on x86 and on arm64. These tests try all orders
of the memory accesses that the architectures allow. The accesses are read from the compiled functions.
*/

//go:embed litmus_x86_bpfel_test.o litmus_arm64_bpfel_test.o
var litmusObjects embed.FS

// litmusAccesses returns, in the order of the code, the accesses of a function to the memory that its argument points to, and
// its fences: R is a load, W a store, U a compare-and-exchange. F is a fence: an atomic OR to a word on the stack.
func litmusAccesses(t *testing.T, arch, function string) []string {
	t.Helper()
	b, err := litmusObjects.ReadFile("litmus_" + arch + "_bpfel_test.o")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	names := map[int16]string{0: "seq", 4: "lock", 8: "first", 16: "second"}
	shared, stack := map[asm.Register]bool{asm.R1: true}, map[asm.Register]bool{asm.RFP: true}
	var out []string
	within := false
	for _, ins := range spec.Programs["litmus"].Instructions {
		if name := ins.Symbol(); name != "" {
			within = name == function
		}
		if !within {
			continue
		}
		op := ins.OpCode
		note := func(kind string, base asm.Register) {
			switch {
			case shared[base]:
				out = append(out, kind+" "+names[ins.Offset])
			case kind == "X" && stack[base]:
				out = append(out, "F")
			case !stack[base]:
				t.Fatalf("%s of %s: nothing is known of the base of %v", function, arch, ins)
			}
		}
		switch {
		case op.Class().IsLoad():
			note("R", ins.Src)
			shared[ins.Dst], stack[ins.Dst] = false, false
		case op.Class().IsStore() && op.Mode() == asm.AtomicMode && op.AtomicOp() == asm.FetchOr:
			note("X", ins.Dst)
		case op.Class().IsStore() && op.Mode() == asm.AtomicMode && op.AtomicOp() == asm.CmpXchg:
			note("U", ins.Dst)
		case op.Class().IsStore():
			note("W", ins.Dst)
		case op.Class().IsALU() && op.ALUOp() == asm.Mov && op.Source() == asm.RegSource:
			shared[ins.Dst], stack[ins.Dst] = shared[ins.Src], stack[ins.Src]
		case op.Class().IsALU() && !(op.ALUOp() == asm.Add && stack[ins.Dst]):
			shared[ins.Dst], stack[ins.Dst] = false, false
		}
	}
	return out
}

// TestLitmusAccesses: the compiled functions have all accesses, and the fences that arm64 needs.
func TestLitmusAccesses(t *testing.T) {
	tests := []struct{ arch, function, want string }{
		{"x86", "litmus_read", "R seq, R first, R second, R seq"},
		{"arm64", "litmus_read", "R seq, F, R first, R second, F, R seq"},
		{"x86", "litmus_write", "R seq, W seq, W first, W second, R seq, W seq"},
		{"arm64", "litmus_write", "R seq, W seq, F, W first, W second, F, R seq, W seq"},
		{"x86", "litmus_count", "R lock, U lock, R first, W first, W lock"},
		{"arm64", "litmus_count", "R lock, U lock, R first, W first, F, W lock"},
	}
	for _, tt := range tests {
		if got := strings.Join(litmusAccesses(t, tt.arch, tt.function), ", "); got != tt.want {
			t.Errorf("%s of %s: %s, want %s", tt.function, tt.arch, got, tt.want)
		}
	}
}

// litmusModel tells whether two accesses of a thread, given in the order of the code, take effect in that order.
type litmusModel func(before, after litmusOp) bool

// litmusX86 is the model of x86: a load may take effect before an earlier store, and nothing else is reordered.
func litmusX86(before, after litmusOp) bool { return before.kind != 'W' || after.kind != 'R' }

// litmusArm64 is the model of arm64: any access may take effect before an earlier one, but for a store with release.
func litmusArm64(_, after litmusOp) bool { return after.release }

// litmusOp is an access of a thread.
type litmusOp struct {
	kind    byte                       // R, W, U or F
	at      func(loaded []uint8) int   // the word, given what earlier accesses have loaded
	store   func(loaded []uint8) uint8 // what W and U store
	needs   uint32                     // bits of the loads that it depends on: by address or data, a store also by a branch
	release bool
}

// These are the words of the memory. The second version of a latch is behind litmusSecond.
const (
	litmusSeq = iota
	litmusLock
	litmusFirst
	litmusSecond
	litmusWords = 6
)

const litmusMaxOps = 16

type litmusState struct {
	done   [2]uint32 // a bit for each access that has taken effect
	words  [litmusWords]uint8
	loaded [2][litmusMaxOps]uint8 // what each access has loaded
}

// litmusBefore returns for each access of a thread a set of bits: the accesses that have to take effect before it.
func litmusBefore(model litmusModel, ops []litmusOp) []uint32 {
	nothing := make([]uint8, litmusMaxOps)
	before := make([]uint32, len(ops))
	for j, after := range ops {
		before[j] = after.needs
		for i, op := range ops[:j] {
			fenced := slices.ContainsFunc(ops[i:j+1], func(o litmusOp) bool { return o.kind == 'F' || o.kind == 'U' })
			same := op.kind != 'F' && after.kind != 'F' && op.at(nothing) == after.at(nothing)
			if fenced || same || model(op, after) {
				before[j] |= 1 << i
			}
		}
	}
	return before
}

// litmusBad tells whether two threads can end in a bad state, in any order that the model allows. An access takes effect for all
// other threads at once, since both architectures are multi-copy atomic. That a thread loads its own store before others see it
// makes no difference to the threads here.
func litmusBad(model litmusModel, threads [2][]litmusOp, bad func(litmusState) bool) bool {
	before := [2][]uint32{litmusBefore(model, threads[0]), litmusBefore(model, threads[1])}
	seen := map[litmusState]bool{}
	var walk func(s litmusState) bool
	walk = func(s litmusState) bool {
		if seen[s] {
			return false
		}
		seen[s] = true
		for n, ops := range threads {
			for i, op := range ops {
				if s.done[n]>>i&1 != 0 || before[n][i]&^s.done[n] != 0 {
					continue
				}
				next := s
				next.done[n] |= 1 << i
				if op.kind != 'F' {
					loaded := next.loaded[n][:]
					word := &next.words[op.at(loaded)]
					if op.kind != 'W' {
						loaded[i] = *word
					}
					if op.kind != 'R' {
						*word = op.store(loaded)
					}
				}
				if walk(next) {
					return true
				}
			}
		}
		return s.done[0] == 1<<len(threads[0])-1 && s.done[1] == 1<<len(threads[1])-1 && bad(s)
	}
	return walk(litmusState{})
}

// litmusOps returns a thread with the accesses. Its stores have no values yet.
func litmusOps(accesses []string) []litmusOp {
	words := map[string]int{"seq": litmusSeq, "lock": litmusLock, "first": litmusFirst, "second": litmusSecond}
	ops := make([]litmusOp, len(accesses))
	for n, a := range accesses {
		kind, name, _ := strings.Cut(a, " ")
		word := words[name]
		ops[n] = litmusOp{kind: kind[0], at: func([]uint8) int { return word }}
	}
	return ops
}

// litmusNth returns the index of the nth occurrence of an access, counted from 0.
func litmusNth(accesses []string, access string, n int) int {
	for i, a := range accesses {
		if a == access {
			if n == 0 {
				return i
			}
			n--
		}
	}
	panic("no such access: " + access)
}

// litmusWithout returns the accesses without the nth fence.
func litmusWithout(accesses []string, n int) []string {
	i := litmusNth(accesses, "F", n)
	return slices.Delete(slices.Clone(accesses), i, i+1)
}

// litmusTorn returns a function that tells whether thread 1, which is litmus_read, accepts a torn read: values of two writes.
func litmusTorn(accesses []string) func(litmusState) bool {
	first, second := litmusNth(accesses, "R first", 0), litmusNth(accesses, "R second", 0)
	return func(s litmusState) bool {
		l := s.loaded[1]
		return l[0]&^1 == l[len(accesses)-1] && l[first] != l[second]
	}
}

// litmusWriter returns the thread litmus_write.
func litmusWriter(accesses []string) []litmusOp {
	ops := litmusOps(accesses)
	for n := range 2 {
		load, store := litmusNth(accesses, "R seq", n), litmusNth(accesses, "W seq", n)
		ops[store].needs = 1 << load
		ops[store].store = func(l []uint8) uint8 {
			if n == 0 {
				return l[load] | 1
			}
			return l[load] + 1
		}
	}
	for _, a := range []string{"W first", "W second"} {
		ops[litmusNth(accesses, a, 0)].store = func([]uint8) uint8 { return 1 }
	}
	return ops
}

// litmusHolder returns the thread litmus_count. A store after a branch waits for the loads that decide the branch. A load does
// not.
func litmusHolder(accesses []string) []litmusOp {
	ops := litmusOps(accesses)
	try, load := litmusNth(accesses, "U lock", 0), litmusNth(accesses, "R first", 0)
	count, give := litmusNth(accesses, "W first", 0), litmusNth(accesses, "W lock", 0)
	ops[try].store = func([]uint8) uint8 { return 1 }
	ops[count].needs, ops[give].needs = 1<<try|1<<load, 1<<try
	ops[count].store = func(l []uint8) uint8 { return l[load] + 1 }
	ops[give].store = func([]uint8) uint8 { return 0 }
	return ops
}

// litmusLost returns a function that tells whether one of two counts is lost. It considers only states in which both threads
// have had the lock, since the accesses do not include what a thread does whose compare-and-exchange fails.
func litmusLost(accesses []string) func(litmusState) bool {
	try := litmusNth(accesses, "U lock", 0)
	return func(s litmusState) bool {
		return s.loaded[0][try] == 0 && s.loaded[1][try] == 0 && s.words[litmusFirst] != 2
	}
}

// TestLitmusSeqcountAndLock: no read is torn, and no count under the lock is lost. On arm64 each of the fences is needed.
func TestLitmusSeqcountAndLock(t *testing.T) {
	torn := func(m litmusModel, read, write []string) bool {
		return litmusBad(m, [2][]litmusOp{litmusWriter(write), litmusOps(read)}, litmusTorn(read))
	}
	lost := func(m litmusModel, count []string) bool {
		return litmusBad(m, [2][]litmusOp{litmusHolder(count), litmusHolder(count)}, litmusLost(count))
	}
	for arch, model := range map[string]litmusModel{"x86": litmusX86, "arm64": litmusArm64} {
		read, write := litmusAccesses(t, arch, "litmus_read"), litmusAccesses(t, arch, "litmus_write")
		count := litmusAccesses(t, arch, "litmus_count")
		if torn(model, read, write) {
			t.Errorf("%s: a read is torn", arch)
		}
		if lost(model, count) {
			t.Errorf("%s: a count under the lock is lost", arch)
		}
		if arch == "x86" {
			if !torn(litmusArm64, read, write) || !lost(litmusArm64, count) {
				t.Error("what is enough on x86 is enough on arm64: the model orders too much")
			}
			continue
		}
		for n := range 2 {
			if !torn(model, litmusWithout(read, n), write) || !torn(model, read, litmusWithout(write, n)) {
				t.Errorf("fence %d of reader or writer is not needed: the model orders too much", n)
			}
		}
		if !lost(model, litmusWithout(count, 0)) {
			t.Error("the fence of the lock is not needed: the model orders too much")
		}
	}
}

// TestLitmusMappedWriter: a process that writes to mapped memory has no fences. No read is torn if each of its stores is a
// release. It is not enough if only the stores to the counter are.
func TestLitmusMappedWriter(t *testing.T) {
	read := litmusAccesses(t, "arm64", "litmus_read")
	for _, all := range []bool{true, false} {
		write := litmusOps([]string{"W seq", "W first", "W second", "W seq"})
		for n, v := range []uint8{1, 1, 1, 2} {
			write[n].store = func([]uint8) uint8 { return v }
			write[n].release = all || n == 0 || n == 3
		}
		if torn := litmusBad(litmusArm64, [2][]litmusOp{write, litmusOps(read)}, litmusTorn(read)); torn == all {
			t.Errorf("all stores are releases: %v; a read is torn: %v", all, torn)
		}
	}
}

// TestLitmusLatch: the counter tells a reader of a latch which version to load. Each bpf(2) of the writer ends with a fence.
func TestLitmusLatch(t *testing.T) {
	accesses := []string{"W first", "W second", "F", "W seq", "F", "W first", "W second", "F", "W seq", "F", "W first", "W second"}
	values := []uint8{1, 1, 0, 1, 0, 1, 1, 0, 2, 0, 2, 2}
	other := []bool{0: true, 1: true, 10: true, 11: true}
	write := litmusOps(accesses)
	for n := range write {
		if other[n] {
			at := write[n].at(nil) + 2
			write[n].at = func([]uint8) int { return at }
		}
		write[n].store = func([]uint8) uint8 { return values[n] }
	}
	torn := func(read []string) bool {
		ops := litmusOps(read)
		first := litmusNth(read, "R first", 0)
		for n := first; n < first+2; n++ {
			at := ops[n].at(nil)
			ops[n].at = func(l []uint8) int { return at + 2*int(l[0]&1) }
			ops[n].needs = 1 << 0
		}
		return litmusBad(litmusArm64, [2][]litmusOp{write, ops}, func(s litmusState) bool {
			l := s.loaded[1]
			return l[0] == l[len(read)-1] && l[first] != l[first+1]
		})
	}
	read := litmusAccesses(t, "arm64", "litmus_read")
	if torn(read) {
		t.Error("a read is torn")
	}
	if !torn(litmusWithout(read, 1)) {
		t.Error("the fence in front of the second load of the counter is not needed: the model orders too much")
	}
}
