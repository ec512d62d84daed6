// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/net/bpf"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/cbpf"
)

/*
Rules become functions. The program calls filter_rules. If there are many rules, filter_rules calls further functions with some
hundred rules each, because the offset of a jump is too small for thousands of rules. In each function R8 holds the context
and R9 the start of the packet; R6 and R7 belong to the expressions. The stack:

	-64..-1   the scratch memory of classic BPF
	-72       a pointer to struct flow_keys
	-80       the ingress interface

Each rule has two copies. The near copy is for packets with at least haveBytes bytes in their first buffer, and reads them
directly. The far copy is for all other packets: a function reads all bytes, which also finds those in later buffers. A packet
that the near copy cannot judge goes on in the far copy of the same rule, and stays there for all rules that follow.

No path through a rule may leave the verifier with more knowledge than it had before the rule: for each difference it would
walk through all rules that follow once more.
*/
const (
	slotScratch = -64
	slotKeys    = -72
	slotIfindex = -80
)

// haveBytes is how many bytes a packet has at least in the near copy. Frames that a NIC receives are not shorter.
const haveBytes = 60

// lenShift is the shift of the packet's length in the result of filter_rules, above the reason (FILTER_LEN_SHIFT).
const lenShift = 12

// chunkSize is the number of instructions from which on a function takes no further rule.
const chunkSize = 6000

// Functions of bpf/filter/*.h. fnRules holds the rules, which call the rest of the first group. The program calls the second group
// before the rules and after them.
const (
	fnRules    = "filter_rules"
	fnHit      = "filter_hit"
	fnHas      = "filter_set_has"
	fnEndpoint = "filter_set_has_endpoint"
	fnOver     = "filter_over"
	fnShort    = "filter_short"
	fnDev      = "filter_dev"

	fnKeys = "flow_keys_parse"
	fnSyn  = "filter_syn_packet"
	fnTop  = "filter_top"
)

// ruleStep is a rule as the programs know it, with numbers in the place of names.
type ruleStep struct {
	action       Action
	counter      int // index of the first of its two counters
	anyInterface bool
	ifindexes    []int // unless anyInterface
	sets         []setStep
	code         []bpf.RawInstruction
	limit        int  // number of the limit, with Limit
	perAddress   bool // the rate is per address or prefix
}

// setStep is a set that the source, or with dst the destination, has to be in. With not it must not be in the set.
type setStep struct {
	set       int
	dst       bool
	endpoints bool
	not       bool
}

// item is a rule, or a lookup of rules, at the place of the first of them.
type item struct {
	place  int
	step   *ruleStep // nil for a lookup
	lookup *lookup
	// check is set if a lookup may have found a rule in front of this place, since it was last asked. After is set behind lookups.
	check, after bool
}

// itemsOf returns what a packet goes through. All rules of lookups are left out but for the lookups.
func itemsOf(steps []ruleStep, lookups []*lookup) (items []item) {
	of := make(map[int]*lookup)
	for _, l := range lookups {
		for _, n := range l.rules {
			of[n] = l
		}
	}
	for n := range steps {
		switch l := of[n]; {
		case l == nil:
			items = append(items, item{place: n, step: &steps[n]})
		case l.rules[0] == n:
			items = append(items, item{place: n, lookup: l})
		}
	}
	for k := 1; k < len(items); k++ {
		from, to := items[k-1].place, items[k].place
		for n := from; n < to; n++ {
			items[k].check = items[k].check || of[n] != nil
		}
		items[k].after = items[k-1].after || items[k-1].lookup != nil
	}
	return items
}

// rulesBody returns the code of filter_rules, and that of the functions that it calls if there are many rules. Bonds tells whether an
// interface of the data plane is a bond: packets come in by its members then, and rules know the bond.
func rulesBody(items []item, bonds bool) (body asm.Instructions, chunks []asm.Instructions, err error) {
	looks := slices.ContainsFunc(items, func(i item) bool { return i.lookup != nil })
	for len(items) > 0 {
		code, n, err := rulesFunction(items, bonds, looks)
		if err != nil {
			return nil, nil, err
		}
		chunks = append(chunks, code)
		items = items[n:]
	}
	if len(chunks) == 1 {
		return chunks[0], nil, nil
	}
	var b asmBuilder
	b.emit(asm.Mov.Reg(asm.R8, asm.R1), asm.Mov.Reg(asm.R9, asm.R2))
	for n := range chunks {
		b.emit(
			asm.Mov.Reg(asm.R1, asm.R8),
			asm.Mov.Reg(asm.R2, asm.R9),
			asm.Call.Label(chunkName(n)),
			asm.JNE.Imm(asm.R0, 0, "decided"))
	}
	b.label("decided")
	b.emit(asm.Return())
	body, err = b.finish()
	return body, chunks, err
}

func chunkName(n int) string { return fmt.Sprintf("%s_%d", fnRules, n) }

// rulesFunction returns the code of the first n items, which are as many as one function takes. Looks is set if there are lookups, also
// in other functions.
func rulesFunction(items []item, bonds, looks bool) (code asm.Instructions, n int, err error) {
	near, far := &bodyWriter{}, &bodyWriter{far: true}
	var steps []*ruleStep
	for ; n < len(items) && (n == 0 || len(near.ins)+len(far.ins) < chunkSize); n++ {
		i := &items[n]
		if i.step != nil {
			steps = append(steps, i.step)
		}
		for _, w := range []*bodyWriter{near, far} {
			if err := w.item(i, n); err != nil {
				return nil, 0, err
			}
		}
	}
	end := labelNone
	if looks && n == len(items) {
		end = labelFound
	}
	near.end(n, end)
	far.end(n, end)
	w := &bodyWriter{}
	w.start(steps, bonds)
	if looks {
		w.ifNoKeys(labelNone)
	}
	if slices.ContainsFunc(steps, func(s *ruleStep) bool { return len(s.code) > 0 }) {
		w.ifShort(far.ruleLabel(0))
	}
	w.add(&near.asmBuilder)
	w.add(&far.asmBuilder)
	if looks {
		w.found(n == len(items))
		w.label(labelNone)
		w.none()
	}
	code, err = w.finish()
	return code, n, err
}

// start writes the beginning of a function, for rules.
func (w *bodyWriter) start(steps []*ruleStep, bonds bool) {
	w.emit(asm.Mov.Reg(asm.R8, asm.R1), asm.LoadMem(asm.R9, asm.R8, 0, asm.Word))
	w.emit(asm.StoreMem(asm.RFP, slotKeys, asm.R2, asm.DWord))
	if slices.ContainsFunc(steps, func(s *ruleStep) bool { return !s.anyInterface }) {
		if bonds {
			w.emit(asm.Mov.Reg(asm.R1, asm.R8), asm.Call.Label(fnDev))
		} else {
			w.emit(asm.LoadMem(asm.R0, asm.R8, 12, asm.Word))
		}
		w.emit(asm.StoreMem(asm.RFP, slotIfindex, asm.R0, asm.DWord))
	}
}

// ifShort goes on at a label if the first buffer has less than haveBytes bytes.
func (w *bodyWriter) ifShort(label string) {
	w.emit(
		asm.LoadMem(asm.R1, asm.R8, 4, asm.Word),
		asm.Mov.Reg(asm.R2, asm.R9),
		asm.Add.Imm(asm.R2, haveBytes),
		asm.JGT.Reg(asm.R2, asm.R1, label))
}

// bodyWriter writes the near or the far copy of rules.
type bodyWriter struct {
	asmBuilder
	far bool
}

// ruleLabel returns the label of the n-th rule of a function.
func (w *bodyWriter) ruleLabel(n int) string {
	if w.far {
		return fmt.Sprintf("far_%d", n)
	}
	return fmt.Sprintf("rule_%d", n)
}

// labelNone is where a packet goes on about which no rule has decided, and labelPass one that a rule of a lookup passes.
const (
	labelNone = "none"
	labelPass = "pass"
)

// end writes what follows the last of n items.
func (w *bodyWriter) end(n int, label string) {
	w.label(w.ruleLabel(n))
	if label == labelNone {
		w.none()
	} else {
		w.emit(asm.Ja.Label(label))
	}
}

// none ends the function for a packet about which no rule has decided.
func (w *bodyWriter) none() { w.emit(asm.Mov.Imm(asm.R0, 0), asm.Return()) }

// pass ends the rules for a packet that skips the rest of the filter.
func (w *bodyWriter) pass() { w.emit(asm.Mov.Imm(asm.R0, int32(bpfobj.ReasonCount)), asm.Return()) }

// item writes the n-th item.
func (w *bodyWriter) item(i *item, n int) error {
	w.label(w.ruleLabel(n))
	if i.check {
		w.ifFound(i.place)
	}
	if i.lookup != nil {
		w.call(i.lookup.name())
		return nil
	}
	return w.rule(i, n)
}

// rule writes the n-th rule. A packet that it does not decide on goes to the next rule.
func (w *bodyWriter) rule(i *item, n int) error {
	s, label, next := i.step, w.ruleLabel(n), w.ruleLabel(n+1)
	matched, short := label+"_match", label+"_short"
	if !s.anyInterface {
		w.matchInterface(s.ifindexes, label+"_on", next)
	}
	if len(s.code) > 0 {
		o := cbpf.Options{
			Prefix: label + "_", Match: matched, NoMatch: next, Short: short, Next: matched, Stack: slotScratch,
			FarOnly: w.far,
		}
		if !w.far {
			o.Have, o.Restart = haveBytes, (&bodyWriter{far: true}).ruleLabel(n)
		}
		code, err := cbpf.Program(s.code).Translate(o)
		if err != nil {
			return err
		}
		w.emit(code...)
	}
	w.label(matched)
	for _, set := range s.sets {
		w.matchSet(set, next)
	}
	if i.after && (s.action == Drop || s.action == Pass) {
		w.countCut(i.place, label+"_counted")
	}
	w.count(s.counter)
	switch s.action {
	case Drop:
		w.drop(bpfobj.PipelineReasonDROP_FILTER)
	case Pass:
		w.pass()
	case Limit:
		w.emit(
			asm.Mov.Reg(asm.R1, asm.R8),
			asm.LoadMem(asm.R2, asm.RFP, slotKeys, asm.DWord),
			asm.Mov.Imm(asm.R3, int32(s.limit)),
			asm.Call.Label(fnOver),
			asm.JEq.Imm(asm.R0, 0, next))
		if i.after {
			w.countCut(i.place, label+"_counted")
		}
		w.count(s.counter + 1)
		w.drop(bpfobj.PipelineReasonDROP_FILTER_LIMIT)
	case Count:
		w.emit(asm.Ja.Label(next))
	}
	// The packet ends before a byte that the expression reads.
	w.label(short)
	w.emit(
		asm.Mov.Reg(asm.R1, asm.R8),
		asm.LoadMem(asm.R2, asm.RFP, slotKeys, asm.DWord),
		asm.Call.Label(fnShort),
		asm.Ja.Label(next))
	return nil
}

// drop ends the rules with a reason. R0 holds the length of the packet, which count has left there.
func (w *bodyWriter) drop(reason bpfobj.PipelineReason) {
	w.emit(asm.LSh.Imm(asm.R0, lenShift), asm.Or.Imm(asm.R0, int32(reason)), asm.Return())
}

// matchInterface jumps to next unless the packet came in by one of the interfaces. On is the label of what follows.
func (w *bodyWriter) matchInterface(ifindexes []int, on, next string) {
	if len(ifindexes) == 0 {
		w.emit(asm.Ja.Label(next))
		return
	}
	w.emit(asm.LoadMem(asm.R1, asm.RFP, slotIfindex, asm.DWord))
	last := len(ifindexes) - 1
	for _, index := range ifindexes[:last] {
		w.emit(asm.JEq.Imm(asm.R1, int32(index), on))
	}
	w.emit(asm.JNE.Imm(asm.R1, int32(ifindexes[last]), next))
	w.label(on)
}

// matchSet jumps to next unless the packet's address is in the set, or with not if it is.
func (w *bodyWriter) matchSet(s setStep, next string) {
	side, fn := int32(0), fnHas
	if s.dst {
		side = 1
	}
	if s.endpoints {
		fn = fnEndpoint
	}
	w.emit(
		asm.LoadMem(asm.R1, asm.RFP, slotKeys, asm.DWord),
		asm.Mov.Imm(asm.R2, int32(s.set)),
		asm.Mov.Imm(asm.R3, side),
		asm.Call.Label(fn))
	if s.not {
		w.emit(asm.JNE.Imm(asm.R0, 0, next))
	} else {
		w.emit(asm.JEq.Imm(asm.R0, 0, next))
	}
}

// count counts the packet, and leaves its length in R0.
func (w *bodyWriter) count(counter int) {
	w.emit(asm.Mov.Reg(asm.R1, asm.R8), asm.Mov.Imm(asm.R2, int32(counter)), asm.Call.Label(fnHit))
}

// needsKeys tells whether the rule reads struct flow_keys.
func (s *ruleStep) needsKeys() bool { return len(s.sets) > 0 || s.perAddress }
