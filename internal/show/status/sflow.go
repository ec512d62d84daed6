// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"

	"culvert/internal/datapath"
	"culvert/internal/sflow/sflowplane"
	"culvert/internal/show/text"
)

// SFlow is the export of samples of a data plane.
type SFlow struct {
	// Rate samples one packet of so many. Drops is how many dropped packets are told of in a second at most.
	Rate  int `json:"rate"`
	Drops int `json:"drops"`
	// Sampled are the packets that were sampled since the program was loaded, and Lost those of them for which there was no room, or
	// no process to send them.
	Sampled uint64 `json:"sampled_packets"`
	Lost    uint64 `json:"lost_samples"`
	// Process is what the process that sends them tells, left out if there is none or it is not known.
	Process *sflowplane.Process `json:"process,omitempty"`
}

func (r *Router) describeSFlow(inst *datapath.Instance) error {
	o := sflowplane.OptionsOf(inst)
	if o == nil {
		return nil
	}
	n, err := sflowplane.ReadCounted(inst)
	if err != nil {
		return err
	}
	r.SFlow = &SFlow{Rate: o.Rate, Drops: o.Drops, Sampled: n.Samples, Lost: n.Lost}
	r.SFlow.Process, err = sflowplane.ProcessOf(inst)
	return err
}

// line describes the export. served tells whether a process serves the data plane.
func (s *SFlow) line(served bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  sflow  1 in %s: %s sampled", text.Grouped(uint64(s.Rate)), text.Grouped(s.Sampled))
	if s.Lost > 0 {
		fmt.Fprintf(&b, ", %s LOST", text.Grouped(s.Lost))
	}
	p := s.Process
	switch {
	case !served:
		b.WriteString("  NO PROCESS sends them: start it with 'culvert run'")
	case p == nil:
	case p.Error != "":
		fmt.Fprintf(&b, "  collector %s GETS NOTHING: %s", p.Collector, p.Error)
	default:
		fmt.Fprintf(&b, "  to %s as %s", p.Collector, p.Agent)
	}
	return b.String()
}
