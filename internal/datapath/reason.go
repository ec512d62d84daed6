// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"strings"
	"sync"

	"github.com/cilium/ebpf/btf"
)

// Verdict is what a reason does with a packet.
type Verdict string

const (
	VerdictPass Verdict = "pass"
	VerdictPunt Verdict = "punt"
	VerdictDrop Verdict = "drop"
	VerdictFwd  Verdict = "fwd"
)

// Reason describes one way out of the pipeline (bpf/core/reason.h).
type Reason struct {
	// Name is in lower case with dashes, without the verdict: "scion-mac".
	Name    string
	Verdict Verdict
	// Text is the sentence that explains it, of bpf/*/reasons.h.
	Text string

	number pipelineReason
}

const (
	// reasonCount is how many indexes there are, of which not all are in use. Packets over a rate are counted that
	// far behind the index of their reason.
	reasonCount = int(pipelineReasonBlockREASON_MAX)
	// reasonBits is REASON_BITS of bpf/core/reason.h: the verdict stands above the index.
	reasonBits = 9
)

// index is where counters and limits of the reason are kept.
func (r pipelineReason) index() uint32 { return uint32(r) & (1<<reasonBits - 1) }

// newReason describes a value of an enum of reasons: VERDICT_NAME.
func newReason(constant string) Reason {
	verdict, rest, _ := strings.Cut(constant, "_")
	r := Reason{Name: fieldName(rest), Verdict: Verdict(strings.ToLower(verdict))}
	if verdict == "XMIT" { // users need not know how an answer leaves
		r.Verdict = VerdictFwd
	}
	return r
}

// Reasons returns all reasons by their index; an index that has no name is not in use.
var Reasons = sync.OnceValue(func() []Reason {
	reasons := make([]Reason, reasonCount)
	for name, value := range enumNames("reason") {
		if value == 0 {
			continue
		}
		r := newReason(name)
		r.Text, r.number = reasonTexts[name], pipelineReason(value)
		reasons[r.number.index()] = r
	}
	return reasons
})

// reasonNames returns verdicts and names of all reasons by their index: what a counter is of.
func reasonNames() []string {
	names := make([]string, reasonCount)
	for n, r := range Reasons() {
		if r.Name != "" {
			names[n] = string(r.Verdict) + " " + r.Name
		}
	}
	return names
}

// lossNames returns the names of the losses after the verdict (bpf/core/losses.bpf.c).
var lossNames = sync.OnceValue(func() []string {
	names := make([]string, int(lossesLossLOSS_COUNT))
	for name, value := range enumNames("loss") {
		if value < uint64(len(names)) {
			names[value] = fieldName(strings.TrimPrefix(name, "LOSS_"))
		}
	}
	return names
})

func fieldName(c string) string {
	return strings.ToLower(strings.ReplaceAll(c, "_", "-"))
}

// enumNames reads an enum from the type information of our own objects.
func enumNames(enum string) map[string]uint64 {
	load := loadPipeline
	switch enum {
	case "loss":
		load = loadLosses
	case "decap_reason":
		load = loadDecap
	}
	spec, err := load()
	if err != nil {
		panic(err) // the object is part of the binary
	}
	var e *btf.Enum
	if err := spec.Types.TypeByName(enum, &e); err != nil {
		panic(fmt.Errorf("enum %s: %w", enum, err))
	}
	names := make(map[string]uint64, len(e.Values))
	for _, v := range e.Values {
		names[v.Name] = v.Value
	}
	return names
}
