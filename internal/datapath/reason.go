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
}

// reasonCount is REASON_MAX of bpf/core/reason.h: room for reasons, of which not all exist.
const reasonCount = 128

// Reasons returns all reasons by their number; a number that has no name is not in use.
var Reasons = sync.OnceValue(func() []Reason {
	reasons := make([]Reason, reasonCount)
	for name, value := range enumNames("reason") {
		if value == 0 || value >= uint64(reasonCount) {
			continue
		}
		verdict, rest, _ := strings.Cut(name, "_")
		reasons[value] = Reason{Name: fieldName(rest), Verdict: Verdict(strings.ToLower(verdict))}
	}
	return reasons
})

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
