// SPDX-License-Identifier: Apache-2.0

// Package reason has the reasons of bpf/*/reasons.h, by which packets leave the programs. Each has a sentence that explains
// it to users.
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
	// Name is the name in lower case with dashes, without the verdict: "scion-mac".
	Name string
	// Text is the sentence.
	Text string
}

// decap is the folder of the decapsulation program, which shares no reasons with the pipeline.
const decap = "decap"

// Stages returns the reasons of all folders: first those of core, which is no stage, then those of the stages in the order in
// which a packet meets them, then those of decap.
func Stages() []Stage { return stages }

// Pipeline returns the reasons of the pipeline and of the filter program in front of it, by Constant.
func Pipeline() map[string]Reason {
	return byConstant(func(stage string) bool { return stage != decap })
}

// Decap returns the reasons of the decapsulation program, by Constant.
func Decap() map[string]Reason { return byConstant(func(stage string) bool { return stage == decap }) }

func byConstant(include func(stage string) bool) map[string]Reason {
	all := make(map[string]Reason)
	for _, s := range stages {
		if !include(s.Name) {
			continue
		}
		for _, r := range s.Reasons {
			all[r.Constant] = r
		}
	}
	return all
}

// StageOf returns the folder of the reason with a constant, "" if there is no such reason.
func StageOf(constant string) string {
	for _, s := range stages {
		for _, r := range s.Reasons {
			if r.Constant == constant {
				return s.Name
			}
		}
	}
	return ""
}

// Named returns the one of a constant in an enum of reasons: VERDICT_NAME. It is among those of bpf/*/reasons.h.
func Named(constant string, all map[string]Reason) Reason {
	r, ok := all[constant]
	if !ok {
		panic("no sentence for reason " + constant + ": run make generate")
	}
	return r
}
