// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/cbpf"
)

/*
A filter whose rules only compare bytes of the packet has a straight way: the rules stand in the program itself, use registers that calls
change, which need not be saved, and what a rule drops is counted and dropped right behind them. Whatever is unusual goes to
filter_general, the whole filter as a function: frames that may have tags of VLANs, short first buffers, bytes beyond haveBytes at a place
that the packet tells. Nothing is counted or changed before.
*/

// fnFilter is the program (bpf/filter/filter.bpf.c), and fnGeneral the same as a function, which returns XDP_PASS for a packet that goes on.
const (
	fnFilter  = "filter"
	fnGeneral = "filter_general"
)

// maxStraight is the most rules of a straight way.
const maxStraight = 64

// The stack of a straight way, as offsets from R10.
const (
	straightIfindex = -4
	straightCounter = -8
	straightLen     = -16
	straightCtx     = -24
	straightScratch = straightCtx - cbpf.MemorySize
)

// Labels of a straight way, besides those of rules.
const (
	straightDrop    = "straight_drop"    // a rule drops the packet
	straightDropped = "straight_dropped" // it has been counted
	straightPass    = "straight_pass"    // a rule lets the packet pass
	straightPassed  = "straight_passed"  // it has been counted
	straightGeneral = "straight_general" // the general code decides
	straightNone    = "straight_none"    // no rule matches
	straightNext    = "straight_next"    // the packet goes on; R1 is its context
	straightEnd     = "straight_end"     // R0 is what becomes of it
)

// Types of frames as a program loads them that does not change the order of their bytes.
const (
	rawIPv4  = 0x0008
	raw8021Q = 0x0081
	raw8021A = 0xa888
)

// straight tells whether the program can have a straight way, as far as that does not depend on expressions.
func (c *programConfig) straight() bool {
	return !c.general && !c.tracing && !c.bonds && len(c.services) == 0 && c.top == TopOff &&
		len(c.steps) > 0 && len(c.steps) <= maxStraight &&
		!slices.ContainsFunc(c.steps, func(s ruleStep) bool {
			return s.action != Drop && s.action != Pass || s.needsKeys()
		})
}

// straightWriter writes a straight way. The registers of rules get other names: those that calls change, if rules have some to spare.
type straightWriter struct {
	asmBuilder
	renamed map[asm.Register]asm.Register
}

// The registers of rules as cbpf has them.
const (
	ruleA    = asm.R6
	ruleX    = asm.R7
	ruleCtx  = asm.R8
	ruleData = asm.R9
)

// straightBody returns the code of the program, nil if an expression calls a function, or if the rules are too long for one: jumps go from
// the first to behind the last.
func straightBody(steps []ruleStep) (asm.Instructions, error) {
	var rules []asm.Instructions
	size := 0
	for n := range steps {
		code, err := straightRule(steps[n].code, n)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(code, func(i asm.Instruction) bool { return i.OpCode.JumpOp() == asm.Call }) {
			return nil, nil
		}
		if size += len(code); size > chunkSize {
			return nil, nil
		}
		rules = append(rules, code)
	}
	w := &straightWriter{renamed: spareRegisters(rules)}
	w.start(steps, rules)
	for n := range steps {
		w.rule(&steps[n], rules[n], n)
	}
	w.label(straightLabel(len(steps)))
	w.emit(asm.Ja.Label(straightNone))
	w.label(straightDrop)
	w.drop()
	w.label(straightPass)
	w.pass()
	w.label(straightGeneral)
	w.general()
	w.label(straightNone)
	w.rest()
	return w.finish()
}

// withStraight returns the program with a straight way, or as it is if the rules cannot have one.
func withStraight(ins asm.Instructions, steps []ruleStep) (_ asm.Instructions, has bool, err error) {
	body, err := straightBody(steps)
	if err != nil || body == nil {
		return ins, false, err
	}
	general, err := generalBody(ins)
	if err != nil {
		return nil, false, err
	}
	if ins, err = addFunction(ins, fnFilter, fnGeneral, general); err != nil {
		return nil, false, err
	}
	ins, err = cbpf.ReplaceFunction(ins, fnFilter, body)
	return ins, true, err
}

// generalBody returns the code of the program, without its tail call: behind that it returns XDP_PASS, as it does nowhere else.
func generalBody(ins asm.Instructions) (asm.Instructions, error) {
	start := slices.IndexFunc(ins, func(i asm.Instruction) bool { return i.Symbol() == fnFilter })
	if start < 0 {
		return nil, fmt.Errorf("there is no function %s", fnFilter)
	}
	body := asm.Instructions{ins[start].WithSymbol("")}
	for _, i := range ins[start+1:] {
		if btf.FuncMetadata(&i) != nil {
			break
		}
		body = append(body, i)
	}
	calls := 0
	for n := range body {
		if body[n].IsBuiltinCall() && body[n].Constant == int64(asm.FnTailCall) {
			body[n] = asm.Mov.Imm(asm.R0, 0).WithSymbol(body[n].Symbol()).WithSource(body[n].Source())
			calls++
		}
	}
	if calls != 1 {
		return nil, fmt.Errorf("the function %s has %d tail calls, not one", fnFilter, calls)
	}
	return body, nil
}

func straightLabel(n int) string { return fmt.Sprintf("straight_%d", n) }

// straightRule translates the expression of the n-th rule.
func straightRule(code cbpf.Program, n int) (asm.Instructions, error) {
	if len(code) == 0 {
		return nil, nil
	}
	label, match := straightLabel(n), straightLabel(n)+"_match"
	return code.Translate(cbpf.Options{
		Prefix: label + "_", Match: match, NoMatch: straightLabel(n + 1), Short: straightGeneral, Next: match, Stack: straightScratch,
		Have: haveBytes, Restart: straightGeneral,
	})
}

// spareRegisters returns which registers stand for those of rules.
func spareRegisters(rules []asm.Instructions) map[asm.Register]asm.Register {
	used := make(map[asm.Register]bool)
	for _, code := range rules {
		for _, i := range code {
			used[i.Dst], used[i.Src] = true, true
		}
	}
	renamed := make(map[asm.Register]asm.Register)
	for _, r := range []asm.Register{ruleCtx, ruleData, ruleA, ruleX} {
		renamed[r] = r
		for to := asm.R1; to <= asm.R5; to++ {
			if !used[to] && (r == ruleCtx) == (to == asm.R1) {
				renamed[r], used[to] = to, true
				break
			}
		}
	}
	return renamed
}

// do appends instructions in which registers have the names that rules give them.
func (w *straightWriter) do(ins ...asm.Instruction) {
	for _, i := range ins {
		if to, ok := w.renamed[i.Dst]; ok {
			i.Dst = to
		}
		if to, ok := w.renamed[i.Src]; ok {
			i.Src = to
		}
		w.emit(i)
	}
}

// first puts the context into R1.
func (w *straightWriter) first() {
	if w.renamed[ruleCtx] != asm.R1 {
		w.do(asm.Mov.Reg(asm.R1, ruleCtx))
	}
}

// start writes what is in front of the rules. It leaves to the general code what the near copy of a rule cannot judge, and what may have
// tags. The first rule of most filters compares the type of the frame with IPv4: that comparison, and the load in front of it, which start
// takes out of the rule's code, are made here.
func (w *straightWriter) start(steps []ruleStep, rules []asm.Instructions) {
	if w.renamed[ruleCtx] != asm.R1 {
		w.do(asm.Mov.Reg(ruleCtx, asm.R1))
	}
	w.do(
		asm.LoadMem(ruleData, ruleCtx, 0, asm.Word),
		asm.LoadMem(ruleA, ruleCtx, 4, asm.Word),
		asm.Mov.Reg(asm.R0, ruleData),
		asm.Add.Imm(asm.R0, haveBytes),
		asm.JGT.Reg(asm.R0, ruleA, straightGeneral),
		asm.LoadMem(ruleA, ruleData, 12, asm.Half))
	if !w.comparesIPv4(&steps[0], rules[0]) {
		w.do(asm.JEq.Imm(ruleA, rawIPv4, straightLabel(0)))
		w.untagged()
		return
	}
	otherwise := rules[0][1].Reference()
	rules[0] = rules[0][2:]
	w.do(asm.JEq.Imm(ruleA, rawIPv4, straightLabel(0)))
	w.untagged()
	w.emit(asm.Ja.Label(otherwise))
}

// comparesIPv4 tells whether a rule begins with a jump unless the type of the frame is IPv4.
func (*straightWriter) comparesIPv4(s *ruleStep, code asm.Instructions) bool {
	if !s.anyInterface || len(code) < 3 {
		return false
	}
	load, jump := code[0], code[1]
	return load.OpCode == asm.LoadMemOp(asm.Half) && load.Dst == ruleA && load.Src == ruleData && load.Offset == 12 &&
		jump.Symbol() == "" && jump.OpCode.Class() == asm.Jump32Class && jump.OpCode.JumpOp() == asm.JNE &&
		jump.OpCode.Source() == asm.ImmSource && jump.Dst == ruleA && jump.Constant == rawIPv4
}

// untagged leaves frames that may have tags to the general code.
func (w *straightWriter) untagged() {
	w.do(asm.JEq.Imm(ruleA, raw8021Q, straightGeneral), asm.JEq.Imm(ruleA, raw8021A, straightGeneral))
}

// rule writes the n-th rule, whose expression has been translated.
func (w *straightWriter) rule(s *ruleStep, code asm.Instructions, n int) {
	label, next := straightLabel(n), straightLabel(n+1)
	w.label(label)
	if !s.anyInterface {
		w.do(asm.LoadMem(asm.R0, ruleCtx, 12, asm.Word))
		for _, index := range s.ifindexes {
			w.emit(asm.JEq.Imm(asm.R0, int32(index), label+"_on"))
		}
		w.emit(asm.Ja.Label(next))
		w.label(label + "_on")
	}
	w.do(code...)
	w.label(label + "_match")
	w.emit(asm.StoreImm(asm.RFP, straightCounter, int64(s.counter), asm.Word))
	if s.action == Pass {
		w.emit(asm.Ja.Label(straightPass))
	} else {
		w.emit(asm.Ja.Label(straightDrop))
	}
}

// drop counts a packet for the rule that drops it, and for its interface.
func (w *straightWriter) drop() {
	w.do(
		asm.LoadMem(asm.R2, ruleCtx, 12, asm.Word),
		asm.StoreMem(asm.RFP, straightIfindex, asm.R2, asm.Word))
	w.length()
	w.count(bpfobj.FilterMapFilterCounts, straightDropped)
	w.find(bpfobj.FilterMapPorts, straightIfindex, straightDropped)
	slot := int16(unsafe.Offsetof(bpfobj.PipelinePort{}.Slot))
	slots, reason := 2*int32(bpfobj.ReasonCount), int32(bpfobj.PipelineReasonDROP_FILTER.Index())
	w.emit(
		asm.LoadMem(asm.R1, asm.R0, slot, asm.Word),
		asm.JEq.Imm(asm.R1, 0, straightDropped),
		asm.Mul.Imm(asm.R1, slots), asm.Add.Imm(asm.R1, reason-slots),
		asm.StoreMem(asm.RFP, straightCounter, asm.R1, asm.Word))
	w.count(bpfobj.FilterMapCounters, straightDropped)
	w.label(straightDropped)
	w.emit(asm.Mov.Imm(asm.R0, xdpDropAction), asm.Return())
}

// pass counts a packet for the rule that lets it pass.
func (w *straightWriter) pass() {
	w.do(asm.StoreMem(asm.RFP, straightCtx, ruleCtx, asm.DWord))
	w.length()
	w.count(bpfobj.FilterMapFilterCounts, straightPassed)
	w.label(straightPassed)
	w.emit(asm.LoadMem(asm.R1, asm.RFP, straightCtx, asm.DWord), asm.Ja.Label(straightNext))
}

// general lets the general code decide.
func (w *straightWriter) general() {
	w.do(asm.StoreMem(asm.RFP, straightCtx, ruleCtx, asm.DWord))
	w.first()
	w.emit(
		asm.Call.Label(fnGeneral),
		asm.JNE.Imm32(asm.R0, xdpPassAction, straightEnd),
		asm.LoadMem(asm.R1, asm.RFP, straightCtx, asm.DWord), asm.Ja.Label(straightNext))
}

// rest writes the way on of a packet.
func (w *straightWriter) rest() {
	w.first()
	w.label(straightNext)
	w.emit(
		asm.LoadMapPtr(asm.R2, 0).WithReference(bpfobj.FilterMapFilterRest),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, xdpPassAction))
	w.label(straightEnd)
	w.emit(asm.Return())
}

// length keeps the length of the packet on the stack.
func (w *straightWriter) length() {
	w.first()
	w.emit(asm.FnXdpGetBuffLen.Call(), asm.StoreMem(asm.RFP, straightLen, asm.R0, asm.DWord))
}

// find looks up a key on the stack. R0 points to the value; the code goes on at none if there is none.
func (w *straightWriter) find(m string, key int32, none string) {
	w.emit(
		asm.LoadMapPtr(asm.R1, 0).WithReference(m),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, key),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, none))
}

// count counts the packet under a counter of a map.
func (w *straightWriter) count(m, none string) {
	packets, bytes := int16(unsafe.Offsetof(bpfobj.PipelineCounter{}.Packets)), int16(unsafe.Offsetof(bpfobj.PipelineCounter{}.Bytes))
	w.find(m, straightCounter, none)
	w.emit(
		asm.LoadMem(asm.R1, asm.R0, packets, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, packets, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, bytes, asm.DWord),
		asm.LoadMem(asm.R2, asm.RFP, straightLen, asm.DWord),
		asm.Add.Reg(asm.R1, asm.R2),
		asm.StoreMem(asm.R0, bytes, asm.R1, asm.DWord))
}
