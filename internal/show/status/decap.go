// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"

	"culvert/internal/decap"
	"culvert/internal/decap/decapplane"
	"culvert/internal/show/text"
	"culvert/internal/stats"
)

// Decap is an interface that has the decapsulation program (culvert lb decap).
type Decap struct {
	Interface string `json:"interface"`
	// Unattached is "gone" if the interface was deleted since, "replaced" if it was also made again, and left out otherwise.
	Unattached string `json:"unattached,omitempty"`
	// again is the command that attaches the program again.
	again string
	// Mode is native or generic.
	Mode    string         `json:"mode"`
	Packets uint64         `json:"packets"`
	Bytes   uint64         `json:"bytes"`
	Reasons []stats.Reason `json:"reasons"`
}

func (r *Report) findDecap() error {
	all, err := decapplane.List()
	if err != nil {
		return err
	}
	for _, d := range all {
		one := Decap{Interface: d.Interface, Mode: "native", Reasons: append([]stats.Reason{}, d.Reasons...),
			Unattached: d.Unattached, again: decap.Command(d)}
		if d.Options.Generic {
			one.Mode = "generic"
		}
		for _, c := range d.Reasons {
			one.Packets += c.Packets
			one.Bytes += c.Bytes
		}
		r.Decap = append(r.Decap, one)
	}
	return nil
}

// decapLines returns the lines of interfaces where tunnels end. verbose explains the reasons.
func (r Report) decapLines(verbose bool) (lines []string) {
	for _, d := range r.Decap {
		if len(lines) > 0 || len(r.Routers) > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, fmt.Sprintf("decap on %s  %s  end of tunnels, see 'culvert lb decap show'", d.Interface, d.Mode))
		if d.Unattached != "" {
			lines = append(lines, "  NOT ATTACHED: "+decap.WhyUnattached(d.Unattached)+". "+decap.Remedy(d.Unattached, d.again))
		}
		t := text.Table{Indent: "    ", Right: []bool{false, false, true, true}}
		t.Add("received", "", text.Grouped(d.Packets)+unit, text.ShortBytes(d.Bytes))
		t.AddReasons(byPackets(d.Reasons), noUnit, verbose)
		lines = append(lines, t.Lines()...)
	}
	return lines
}
