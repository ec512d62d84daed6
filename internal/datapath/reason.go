// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"strings"
	"sync"

	"culvert/internal/bpfobj"
	"culvert/internal/reason"
)

// Verdict is what happens to a packet with a reason.
type Verdict string

const (
	VerdictPass Verdict = "pass"
	VerdictPunt Verdict = "punt"
	VerdictDrop Verdict = "drop"
	VerdictFwd  Verdict = "fwd"
)

// Reason describes one of the reasons that packets leave the pipeline with (bpf/core/reason.h).
type Reason struct {
	// Name is in lower case with dashes, without the verdict: "other" of "pass other".
	Name    string
	Verdict Verdict
	// Stage is the folder of bpf/ that has the reason.
	Stage string
	// Text is the sentence of bpf/*/reasons.h that explains the reason.
	Text string

	number bpfobj.PipelineReason
}

// Reasons returns all reasons by their index. An index that is not in use has no name.
var Reasons = sync.OnceValue(func() []Reason {
	all := reason.Pipeline()
	reasons := make([]Reason, bpfobj.ReasonCount)
	for name, value := range bpfobj.EnumNames(bpfobj.LoadPipeline, "reason") {
		if value == 0 {
			continue
		}
		known := reason.Named(name, all)
		r := Reason{Name: known.Name, Verdict: Verdict(known.Verdict), Stage: reason.StageOf(name), Text: known.Text, number: bpfobj.PipelineReason(value)}
		reasons[r.number.Index()] = r
	}
	return reasons
})

// Decided is the reason of a single packet, as the programs hand it to user space.
type Decided struct {
	Reason
	// Dropped tells that the packet was dropped, and Limited that it would have been punted but for the limit of the reason.
	Dropped, Limited bool
}

// ReasonOf returns what a reason of the programs says. It has no name if there is no such reason.
func ReasonOf(n bpfobj.PipelineReason) (d Decided) {
	index := int(n.Index())
	if d.Limited = index >= bpfobj.ReasonCount; d.Limited {
		index -= bpfobj.ReasonCount
	}
	if index < len(Reasons()) {
		d.Reason = Reasons()[index]
	}
	d.Dropped = d.Limited || d.Verdict == VerdictDrop
	return d
}

// reasonNames returns verdict and name of each reason by its index, "" for an index that is not in use.
func reasonNames() []string {
	names := make([]string, bpfobj.ReasonCount)
	for n, r := range Reasons() {
		if r.Name != "" {
			names[n] = string(r.Verdict) + " " + r.Name
		}
	}
	return names
}

// lossNames returns the names of the losses after the verdict (bpf/core/losses.bpf.c) by their index.
var lossNames = sync.OnceValue(func() []string {
	names := make([]string, int(bpfobj.LossesLossLOSS_COUNT))
	for name, value := range bpfobj.EnumNames(bpfobj.LoadLosses, "loss") {
		if value < uint64(len(names)) {
			names[value] = bpfobj.FieldName(strings.TrimPrefix(name, "LOSS_"))
		}
	}
	return names
})
