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
bpf/core/seqcount.h and lock.h argue that what programs read belongs together on x86 and on arm64. Here all orders of the
accesses are tried that the architectures allow. The accesses are those of the compiled functions.
*/

//go:embed litmus_x86_bpfel_test.o litmus_arm64_bpfel_test.o
var litmusObjects embed.FS

// litmusAccesses returns the accesses of a function to the memory that its argument points to, in the order of the code, and
// its fences: R for a load, W for a store, U for a compare-and-exchange, F for an exchange of a word on the stack.
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
		case op.Class().IsStore() && op.Mode() == asm.AtomicMode && op.AtomicOp() == asm.Xchg:
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

// What clang has made of the headers: no access is missing, and the fences are where arm64 needs them.
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

// litmusModel says of two accesses of a thread, given in the order of the code, whether all see them in that order.
type litmusModel func(before, after litmusOp) bool

// On x86 only a load may pass a store that is in front of it.
func litmusX86(before, after litmusOp) bool { return before.kind != 'W' || after.kind != 'R' }

// On arm64 any access may pass another, but a release store passes nothing.
func litmusArm64(_, after litmusOp) bool { return after.release }

// litmusOp is an access of a thread.
type litmusOp struct {
	kind    byte                       // R, W, U or F
	at      func(loaded []uint8) int   // the word, by what the accesses before have loaded
	store   func(loaded []uint8) uint8 // what W and U store
	needs   uint32                     // loads that it depends on by address or data, or by a branch if it is a store
	release bool
}

// Words of the memory. A latch has its other version behind litmusSecond.
const (
	litmusSeq = iota
	litmusLock
	litmusFirst
	litmusSecond
	litmusWords = 6
)

const litmusMaxOps = 16

type litmusState struct {
	done   [2]uint32 // accesses that have taken effect, a bit each
	words  [litmusWords]uint8
	loaded [2][litmusMaxOps]uint8 // by each access
}

// litmusBefore returns for each access of a thread those that have to take effect before it, a bit each.
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

// litmusBad says whether two threads can end in a state that is bad, in any order that the model allows. An access takes
// effect for all others at once, as both architectures are multi-copy atomic. No thread here could tell that it loads its
// own store earlier than others do.
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

// litmusOps makes a thread of accesses. Its stores have no values yet.
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

// litmusNth is the index of the nth access of its kind, from 0.
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

// litmusTorn says of thread 1, which is litmus_read, whether it takes what does not belong together.
func litmusTorn(accesses []string) func(litmusState) bool {
	first, second := litmusNth(accesses, "R first", 0), litmusNth(accesses, "R second", 0)
	return func(s litmusState) bool {
		l := s.loaded[1]
		return l[0]&^1 == l[len(accesses)-1] && l[first] != l[second]
	}
}

// litmusWriter is litmus_write.
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

// litmusHolder is litmus_count. A store behind a branch waits for what decides on the branch; a load does not.
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

// litmusLost says whether one of two counts is lost. Only ends in which both threads have had the lock are looked at: what
// one does whose compare-and-exchange fails is not in the list of accesses.
func litmusLost(accesses []string) func(litmusState) bool {
	try := litmusNth(accesses, "U lock", 0)
	return func(s litmusState) bool {
		return s.loaded[0][try] == 0 && s.loaded[1][try] == 0 && s.words[litmusFirst] != 2
	}
}

// What programs read belongs together, and what they count under a lock is not lost. On arm64 it takes each of the fences.
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
			t.Errorf("%s: what was read does not belong together", arch)
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

// A process that writes to mapped memory has no fences, but each of its stores is a release. Releases of the counter alone
// are not enough.
func TestLitmusMappedWriter(t *testing.T) {
	read := litmusAccesses(t, "arm64", "litmus_read")
	for _, all := range []bool{true, false} {
		write := litmusOps([]string{"W seq", "W first", "W second", "W seq"})
		for n, v := range []uint8{1, 1, 1, 2} {
			write[n].store = func([]uint8) uint8 { return v }
			write[n].release = all || n == 0 || n == 3
		}
		if torn := litmusBad(litmusArm64, [2][]litmusOp{write, litmusOps(read)}, litmusTorn(read)); torn == all {
			t.Errorf("all stores are releases: %v; what was read does not belong together: %v", all, torn)
		}
	}
}

// A reader of a latch loads from where the counter says. Fences of the writer are the ends of its calls of bpf(2).
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
		t.Error("what was read does not belong together")
	}
	if !torn(litmusWithout(read, 1)) {
		t.Error("the fence in front of the second load of the counter is not needed: the model orders too much")
	}
}
