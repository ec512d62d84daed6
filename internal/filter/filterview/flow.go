// SPDX-License-Identifier: Apache-2.0

package filterview

import (
	"fmt"
	"slices"
	"strings"

	"culvert/internal/capture/trace"
	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
)

// FlowStep is what the filter does with a packet that comes in by some interfaces.
type FlowStep struct {
	Interfaces []string
	// Rule is the rule that decides, with its action, "" if none does.
	Rule string
	trace.Step
}

// Judge says what the filter in force on a data plane does with a frame, for each of the interfaces by which it may come in. Interfaces with
// the same answer are together. It is nothing for a data plane without rules. No counter changes.
func Judge(inst *datapath.Instance, frame []byte, interfaces []string) (steps []FlowStep, err error) {
	e := &explainer{}
	defer e.Close()
	on, err := e.Follow(inst)
	if err != nil || !on {
		return nil, err
	}
	p, err := trace.Parse(trace.Frame{Data: frame, Length: len(frame)}, [6]byte(frame))
	if err != nil {
		return nil, err
	}
	for _, name := range interfaces {
		v, err := e.tester.Run(frame, name)
		if err != nil {
			return nil, err
		}
		s := FlowStep{Interfaces: []string{name}, Step: e.step(p, v)}
		if v.Rule != "" {
			s.Rule = string(v.Action) + " by " + v.Rule
		}
		if v.Reason != "" {
			s.Rule = string(filterplane.Drop) + " as " + v.Reason
		}
		if n := slices.IndexFunc(steps, s.same); n >= 0 {
			steps[n].Interfaces = append(steps[n].Interfaces, name)
		} else {
			steps = append(steps, s)
		}
	}
	return steps, nil
}

func (s FlowStep) same(o FlowStep) bool {
	return s.Rule == o.Rule && s.Text == o.Text && slices.Equal(s.Lookups, o.Lookups)
}

// Lines returns it for people. Interfaces are named if there are others of which something else is true.
func (s FlowStep) Lines(named bool) []string {
	head := "filter: " + s.Text
	if named {
		head = fmt.Sprintf("filter on %s: %s", strings.Join(s.Interfaces, ", "), s.Text)
	}
	return append([]string{head}, s.Lookups...)
}
