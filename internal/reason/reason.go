// SPDX-License-Identifier: Apache-2.0

// Package reason has what bpf/*/reasons.h says: the ways out of the programs, each with the sentence that explains it to
// users.
package reason

//go:generate go run ../genreasons

// Stage is a folder of bpf/ with its reasons.
type Stage struct {
	Name    string
	Reasons []Reason
}

// Reason is a line of bpf/NAME/reasons.h.
type Reason struct {
	// Constant is the name in C: "PUNT_SCION_MAC".
	Constant string
	// Verdict is pass, punt, drop, fwd or decap.
	Verdict string
	// Name is in lower case with dashes, without the verdict: "scion-mac".
	Name string
	// Text is the sentence.
	Text string
}

// decap has a program of its own, and reasons that are no others'.
const decap = "decap"

// Stages lists all reasons: core's first, which is no stage, those of the stages in the order of a packet's way, and those
// of tunnels' ends.
func Stages() []Stage { return stages }

// Pipeline has the reasons of the pipeline, and of the filter in front of it, by their constants.
func Pipeline() map[string]Reason {
	return byConstant(func(stage string) bool { return stage != decap })
}

// Decap has those of tunnels' ends.
func Decap() map[string]Reason { return byConstant(func(stage string) bool { return stage == decap }) }

func byConstant(of func(stage string) bool) map[string]Reason {
	all := make(map[string]Reason)
	for _, s := range stages {
		for _, r := range s.Reasons {
			if of(s.Name) {
				all[r.Constant] = r
			}
		}
	}
	return all
}

// Named returns the one of a constant in an enum of reasons: VERDICT_NAME. It is among those of bpf/*/reasons.h.
func Named(constant string, all map[string]Reason) Reason {
	r, ok := all[constant]
	if !ok {
		panic("no sentence for reason " + constant + ": run make generate")
	}
	return r
}
