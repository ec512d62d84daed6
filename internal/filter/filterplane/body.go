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
The rules as functions. The one that the program calls, filter_rules, calls others with some hundred rules each: a
jump is not long enough for thousands. In these R8 holds the context and R9 the start of the packet throughout, R6 and
R7 belong to the expressions. The stack:

	-64..-1   the scratch memory of classic BPF
	-72       struct look
	-80       the ingress interface

Each rule is there twice. The first time it reads the packet directly, of which haveBytes bytes are there. The second
time, for packets and buffers that are shorter, all is read by a function, which knows what is behind the first buffer;
rules that follow then are asked there, too. No rule leaves the verifier wiser than it was in front of it: it would walk
all that follow once more for each thing that it may know.
*/
const (
	slotScratch = -64
	slotLook    = -72
	slotIfindex = -80
)

// haveBytes is how many bytes the first of the two copies takes for granted: what a card receives is never shorter.
const haveBytes = 60

// lenShift is where the length of a packet stands in an answer, above the reason (FILTER_LEN_SHIFT).
const lenShift = 12

// chunkSize is up to how many instructions a function takes in another rule.
const chunkSize = 6000

// Functions of bpf/filter*.h: those that the code calls, and those that come before and behind the rules.
const (
	fnRules    = "filter_rules"
	fnHit      = "filter_hit"
	fnHas      = "filter_set_has"
	fnEndpoint = "filter_set_has_endpoint"
	fnOver     = "filter_over"
	fnShort    = "filter_short"

	fnKeys = "flow_keys_parse"
	fnSyn  = "filter_syn_packet"
	fnTop  = "filter_top"
)

// ruleStep is a rule with all names turned into what the programs know.
type ruleStep struct {
	action    Action
	place     int // of its counters
	anywhere  bool
	ifindex   []int
	sets      []setStep
	code      []bpf.RawInstruction
	limit     int  // with Limit
	addressed bool // its rate is one per address
}

type setStep struct {
	set       int
	dst       bool
	endpoints bool
	not       bool
}

// rulesBody is the code of the rules: the function that the program calls, and those that it calls.
func rulesBody(steps []ruleStep) (body asm.Instructions, chunks []asm.Instructions, err error) {
	for len(steps) > 0 {
		code, n, err := rulesFunction(steps)
		if err != nil {
			return nil, nil, err
		}
		chunks = append(chunks, code)
		steps = steps[n:]
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
			asm.JNE.Imm(asm.R0, 0, "answered"))
	}
	b.label("answered")
	b.emit(asm.Return())
	body, err = b.finish()
	return body, chunks, err
}

func chunkName(n int) string { return fmt.Sprintf("%s_%d", fnRules, n) }

// rulesFunction is the code of as many of the rules as go into one function.
func rulesFunction(steps []ruleStep) (code asm.Instructions, n int, err error) {
	near, far := &bodyWriter{}, &bodyWriter{far: true}
	for ; n < len(steps) && (n == 0 || len(near.ins)+len(far.ins) < chunkSize); n++ {
		for _, w := range []*bodyWriter{near, far} {
			if err := w.step(&steps[n], n); err != nil {
				return nil, 0, err
			}
		}
	}
	near.end(n)
	far.end(n)
	w := &asmBuilder{}
	w.emit(asm.Mov.Reg(asm.R8, asm.R1), asm.LoadMem(asm.R9, asm.R8, 0, asm.Word))
	w.emit(asm.StoreMem(asm.RFP, slotLook, asm.R2, asm.DWord))
	if slices.ContainsFunc(steps[:n], func(s ruleStep) bool { return !s.anywhere }) {
		w.emit(
			asm.LoadMem(asm.R1, asm.R8, 12, asm.Word),
			asm.StoreMem(asm.RFP, slotIfindex, asm.R1, asm.DWord))
	}
	w.emit(
		asm.LoadMem(asm.R1, asm.R8, 4, asm.Word),
		asm.Mov.Reg(asm.R2, asm.R9),
		asm.Add.Imm(asm.R2, haveBytes),
		asm.JGT.Reg(asm.R2, asm.R1, far.label(0)))
	w.add(&near.asmBuilder)
	w.add(&far.asmBuilder)
	code, err = w.finish()
	return code, n, err
}

// bodyWriter writes one of the two copies of rules.
type bodyWriter struct {
	asmBuilder
	far bool
}

func (w *bodyWriter) label(n int) string {
	if w.far {
		return fmt.Sprintf("far_%d", n)
	}
	return fmt.Sprintf("rule_%d", n)
}

// end is what is behind the last rule.
func (w *bodyWriter) end(n int) {
	w.asmBuilder.label(w.label(n))
	w.emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
}

// step is the code of a rule. It goes on at the next one for packets that the rule leaves to others.
func (w *bodyWriter) step(s *ruleStep, n int) error {
	label, next := w.label(n), w.label(n+1)
	matched, short := label+"_match", label+"_short"
	w.asmBuilder.label(label)
	if !s.anywhere {
		w.cameIn(s.ifindex, label+"_on", next)
	}
	if len(s.code) > 0 {
		o := cbpf.Options{
			Prefix: label + "_", Match: matched, NoMatch: next, Short: short, Next: matched, Stack: slotScratch,
			FarOnly: w.far,
		}
		if !w.far {
			o.Have, o.Restart = haveBytes, (&bodyWriter{far: true}).label(n)
		}
		code, err := cbpf.Program(s.code).Translate(o)
		if err != nil {
			return err
		}
		w.emit(code...)
	}
	w.asmBuilder.label(matched)
	for _, set := range s.sets {
		w.member(set, next)
	}
	w.hit(s.place)
	switch s.action {
	case Drop:
		w.drop(bpfobj.PipelineReasonDROP_FILTER)
	case Pass:
		w.emit(asm.Mov.Imm(asm.R0, int32(bpfobj.ReasonCount)), asm.Return())
	case Limit:
		w.emit(
			asm.Mov.Reg(asm.R1, asm.R8),
			asm.LoadMem(asm.R2, asm.RFP, slotLook, asm.DWord),
			asm.Mov.Imm(asm.R3, int32(s.limit)),
			asm.Call.Label(fnOver),
			asm.JEq.Imm(asm.R0, 0, next))
		w.hit(s.place + 1)
		w.drop(bpfobj.PipelineReasonDROP_FILTER_LIMIT)
	case Count:
		w.emit(asm.Ja.Label(next))
	}
	// A packet that ends before what the expression asks for.
	w.asmBuilder.label(short)
	w.emit(
		asm.Mov.Reg(asm.R1, asm.R8),
		asm.LoadMem(asm.R2, asm.RFP, slotLook, asm.DWord),
		asm.Call.Label(fnShort),
		asm.Ja.Label(next))
	return nil
}

// drop ends the rules with a reason, behind a call that has returned the length.
func (w *bodyWriter) drop(reason bpfobj.PipelineReason) {
	w.emit(asm.LSh.Imm(asm.R0, lenShift), asm.Or.Imm(asm.R0, int32(reason)), asm.Return())
}

// cameIn goes on at next unless the packet came in by one of the interfaces.
func (w *bodyWriter) cameIn(ifindex []int, on, next string) {
	if len(ifindex) == 0 {
		w.emit(asm.Ja.Label(next))
		return
	}
	w.emit(asm.LoadMem(asm.R1, asm.RFP, slotIfindex, asm.DWord))
	last := len(ifindex) - 1
	for _, index := range ifindex[:last] {
		w.emit(asm.JEq.Imm(asm.R1, int32(index), on))
	}
	w.emit(asm.JNE.Imm(asm.R1, int32(ifindex[last]), next))
	w.asmBuilder.label(on)
}

// member goes on at next unless the packet is in the set, or with not if it is.
func (w *bodyWriter) member(s setStep, next string) {
	side, fn := int32(0), fnHas
	if s.dst {
		side = 1
	}
	if s.endpoints {
		fn = fnEndpoint
	}
	w.emit(
		asm.LoadMem(asm.R1, asm.RFP, slotLook, asm.DWord),
		asm.Mov.Imm(asm.R2, int32(s.set)),
		asm.Mov.Imm(asm.R3, side),
		asm.Call.Label(fn))
	if s.not {
		w.emit(asm.JNE.Imm(asm.R0, 0, next))
	} else {
		w.emit(asm.JEq.Imm(asm.R0, 0, next))
	}
}

// hit counts the packet.
func (w *bodyWriter) hit(place int) {
	w.emit(asm.Mov.Reg(asm.R1, asm.R8), asm.Mov.Imm(asm.R2, int32(place)), asm.Call.Label(fnHit))
}

// looks tells whether there has to be something in struct look.
func (s *ruleStep) looks() bool { return len(s.sets) > 0 || s.addressed }
