// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf/asm"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/cbpf"
)

// Fields of struct flow_keys.
const (
	keysRank = int16(unsafe.Offsetof(bpfobj.FilterFlowKeys{}.Rank))
	keysRule = int16(unsafe.Offsetof(bpfobj.FilterFlowKeys{}.Rule))
	keysCut  = int16(unsafe.Offsetof(bpfobj.FilterFlowKeys{}.Cut))
)

// slotLookup is where the key of a lookup ends on the stack of its function, below what functions of rules have there.
const slotLookup = slotIfindex

// name returns the name of the lookup's function.
func (l *lookup) name() string { return fmt.Sprintf("filter_shape_of_%d", l.number) }

// slot returns the offset from R10 of a word of the key.
func (l *lookup) slot(word int) int16 { return int16(slotLookup - 4*l.words() + 4*word) }

// function returns the code of the lookup's function, which is called as filter_rules is. It returns 0, and leaves what it has found in
// struct flow_keys. First is the first rule, and walks the number of functions of walk.
func (l *lookup) function(first *ruleStep, bonds bool, walks int) (asm.Instructions, error) {
	w := &bodyWriter{}
	w.start([]*ruleStep{first}, bonds)
	w.ifNoKeys("done")
	if !first.anyInterface {
		w.matchInterface(first.ifindexes, "on", "done")
	}
	w.ifShort(l.label(true, 0))
	for _, far := range []bool{false, true} {
		for n := range l.shape.Runs {
			if err := l.run(w, first.code, n, far); err != nil {
				return nil, err
			}
		}
		if !far {
			w.emit(asm.Ja.Label("done"))
		}
	}
	if walks > 0 {
		w.emit(asm.Ja.Label("done"))
		w.label("walk")
	}
	for n := range walks {
		w.call(l.walkName(n))
		w.emit(asm.JNE.Imm(asm.R0, 0, "done"))
	}
	w.label("done")
	w.none()
	return w.finish()
}

// walkName returns the name of one of the functions that try the lookup's rules one after the other.
func (l *lookup) walkName(n int) string { return fmt.Sprintf("%s_%d", l.name(), n) }

// walk returns the code of functions that try the lookup's rules one after the other. They are called as filter_rules is, return 1 if a
// rule matches, and leave in struct flow_keys what the lookup's function does. There are none if values always tell.
func (l *lookup) walk(steps []ruleStep) (functions []asm.Instructions, err error) {
	if !slices.ContainsFunc(l.shape.Runs, func(r cbpf.Run) bool { return r.Walks() }) {
		return nil, nil
	}
	for rules := l.rules; len(rules) > 0; {
		w, n := &bodyWriter{far: true}, 0
		w.start(nil, false)
		w.ifNoKeys(labelNone)
		for ; n < len(rules) && (n == 0 || len(w.ins) < chunkSize); n++ {
			s, label, next := &steps[rules[n]], w.ruleLabel(n), w.ruleLabel(n+1)
			found, cut := label+"_found", label+"_cut"
			code, err := cbpf.Program(s.code).Translate(cbpf.Options{
				Prefix: label + "_", Match: found, NoMatch: next, Short: cut, Next: found, Stack: slotScratch, FarOnly: true,
			})
			if err != nil {
				return nil, err
			}
			w.label(label)
			w.emit(code...)
			w.label(found)
			w.emit(asm.LoadMem(asm.R1, asm.RFP, slotKeys, asm.DWord), asm.Mov.Imm(asm.R2, int32(rank(rules[n]))))
			w.keep(keysRank, labelPass)
			w.emit(
				asm.Mov.Imm(asm.R2, int32(s.found())), asm.StoreMem(asm.R1, keysRule, asm.R2, asm.Word),
				asm.Ja.Label(labelPass))
			w.label(cut)
			w.emit(asm.LoadMem(asm.R1, asm.RFP, slotKeys, asm.DWord), asm.Mov.Imm(asm.R2, int32(rank(rules[n]))))
			w.keep(keysCut, next)
		}
		w.label(w.ruleLabel(n))
		w.label(labelNone)
		w.none()
		w.label(labelPass)
		w.emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
		code, err := w.finish()
		if err != nil {
			return nil, err
		}
		functions, rules = append(functions, code), rules[n:]
	}
	return functions, nil
}

// keep stores a rank, in R2, in a field of struct flow_keys, to which R1 points, unless that has a higher one: then the code goes on at
// a label.
func (w *bodyWriter) keep(field int16, otherwise string) {
	w.emit(
		asm.LoadMem(asm.R3, asm.R1, field, asm.Word),
		asm.JGE.Reg(asm.R3, asm.R2, otherwise),
		asm.StoreMem(asm.R1, field, asm.R2, asm.Word))
}

// label returns the label of a run. The label behind the last one ends the function.
func (l *lookup) label(far bool, run int) string {
	switch {
	case run == len(l.shape.Runs):
		return "done"
	case far:
		return fmt.Sprintf("far_%d", run)
	}
	return fmt.Sprintf("run_%d", run)
}

// run writes a run, in the near or the far copy.
func (l *lookup) run(w *bodyWriter, code cbpf.Program, n int, far bool) error {
	r, label, next := &l.shape.Runs[n], l.label(far, n), l.label(far, n+1)
	found, cut := label+"_found", func(values uint32) string { return fmt.Sprintf("%s_cut%x", label, values) }
	o := cbpf.Options{
		Prefix: label + "_", Match: found, NoMatch: next, Short: next, Next: found, Stack: slotScratch, FarOnly: far,
		Choices: l.shape.Choices(r, func(value int) int16 { return l.slot(1 + value) }), ShortAt: make(map[int]string),
	}
	if !far {
		o.Have, o.Restart = haveBytes, l.label(true, n)
	}
	for at, values := range r.Cuts {
		o.ShortAt[at] = cut(values)
	}
	w.label(label)
	translated, err := code.Translate(o)
	if err != nil {
		return err
	}
	w.emit(translated...)
	w.label(found)
	l.find(w, l.allValues(), next)
	w.keep(keysRank, next)
	w.emit(
		asm.LoadMem(asm.R2, asm.R0, 4, asm.Word),
		asm.StoreMem(asm.R1, keysRule, asm.R2, asm.Word),
		asm.Ja.Label(next))
	written := make(map[uint32]bool)
	for _, values := range r.Cuts {
		if written[values] {
			continue
		}
		written[values] = true
		w.label(cut(values))
		if values == cbpf.Unknown {
			w.emit(asm.Ja.Label("walk"))
			continue
		}
		l.find(w, values, next)
		w.keep(keysCut, next)
		w.emit(asm.Ja.Label(next))
	}
	return nil
}

// find writes code that looks up the first rule by some of its values, and goes on at next if there is none. It leaves a pointer to
// struct flow_keys in R1 and the rank of the rule in R2, and in R0 a pointer to what the map has, unless no value is known: then it is
// the first rule of all.
func (l *lookup) find(w *bodyWriter, values uint32, next string) {
	if values == 0 {
		w.emit(asm.LoadMem(asm.R1, asm.RFP, slotKeys, asm.DWord), asm.Mov.Imm(asm.R2, int32(rank(l.rules[0]))))
		return
	}
	w.emit(asm.StoreImm(asm.RFP, l.slot(0), int64(l.id(values)), asm.Word))
	for v := range l.shape.Values {
		if values>>v&1 == 0 {
			w.emit(asm.StoreImm(asm.RFP, l.slot(1+v), 0, asm.Word))
		}
	}
	w.emit(
		asm.LoadMapPtr(asm.R1, 0).WithReference(lookupMap(l.words())),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, int32(l.slot(0))),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, next),
		asm.LoadMem(asm.R1, asm.RFP, slotKeys, asm.DWord),
		asm.LoadMem(asm.R2, asm.R0, 0, asm.Word))
}

// call writes a call of a function as filter_rules is called.
func (w *bodyWriter) call(name string) {
	w.emit(asm.Mov.Reg(asm.R1, asm.R8), asm.LoadMem(asm.R2, asm.RFP, slotKeys, asm.DWord), asm.Call.Label(name))
}

// ifNoKeys goes on at a label if the function has no struct flow_keys, which does not happen: the verifier does not know it.
func (w *bodyWriter) ifNoKeys(label string) { w.emit(asm.JEq.Imm(asm.R2, 0, label)) }

// labelFound is where the rule takes effect that lookups have found.
const labelFound = "found"

// ifFound goes on at labelFound if lookups have found a rule in front of that place.
func (w *bodyWriter) ifFound(place int) {
	w.emit(
		asm.LoadMem(asm.R1, asm.RFP, slotKeys, asm.DWord),
		asm.LoadMem(asm.R1, asm.R1, keysRank, asm.Word),
		asm.JGT.Imm(asm.R1, int32(rank(place)), labelFound))
}

// countCut counts a packet that ends before a byte that a rule of a lookup reads, if the rule is in front of a place, where another one
// decides.
func (w *bodyWriter) countCut(place int, counted string) {
	w.emit(
		asm.LoadMem(asm.R2, asm.RFP, slotKeys, asm.DWord),
		asm.LoadMem(asm.R1, asm.R2, keysCut, asm.Word),
		asm.JLE.Imm(asm.R1, int32(rank(place)), counted),
		asm.Mov.Reg(asm.R1, asm.R8), asm.Call.Label(fnShort))
	w.label(counted)
}

// found writes what a rule does that lookups have found. Last is set at the end of all rules, where they may have found none.
func (w *bodyWriter) found(last bool) {
	w.label(labelFound)
	w.emit(
		asm.LoadMem(asm.R6, asm.RFP, slotKeys, asm.DWord),
		asm.LoadMem(asm.R1, asm.R6, keysRank, asm.Word),
		asm.LoadMem(asm.R2, asm.R6, keysCut, asm.Word),
		asm.JGE.Reg(asm.R1, asm.R2, "counted"),
		asm.Mov.Reg(asm.R1, asm.R8), asm.Mov.Reg(asm.R2, asm.R6), asm.Call.Label(fnShort))
	w.label("counted")
	w.emit(asm.LoadMem(asm.R7, asm.R6, keysRule, asm.Word))
	if last {
		w.emit(asm.JEq.Imm(asm.R7, 0, labelNone))
	}
	w.emit(
		asm.Mov.Reg(asm.R1, asm.R8), asm.Mov.Reg(asm.R2, asm.R7), asm.RSh.Imm(asm.R2, 1), asm.Call.Label(fnHit),
		asm.And.Imm(asm.R7, 1), asm.JEq.Imm(asm.R7, 0, labelPass))
	w.drop(bpfobj.PipelineReasonDROP_FILTER)
	w.label(labelPass)
	w.pass()
}
