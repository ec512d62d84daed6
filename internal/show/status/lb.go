// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"

	"culvert/internal/datapath"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/lbview"
	"culvert/internal/show/text"
)

// LB sums up the load balancer of a data plane. 'culvert lb show' has more.
type LB struct {
	lbview.Counts
}

func (r *Router) describeLB(inst *datapath.Instance) error {
	c, err := lbview.Count(inst)
	if err == nil && c != nil {
		r.LB = &LB{*c}
	}
	return err
}

// lines describe the load balancer, and VIPs that are drained as a whole: somebody may have forgotten to take them back.
func (b *LB) lines() []string {
	lines := []string{b.line()}
	if vips := b.DrainedVIPs; len(vips) > 0 {
		lines = append(lines, fmt.Sprintf("  lb  DRAINED: %s: not announced because of it: culvert lb undrain %s", some(vips), vips[0]))
	}
	for _, problem := range b.PeerProblems {
		lines = append(lines, "  lb  PEERS: "+problem)
	}
	return lines
}

// most is how many names a line has.
const most = 3

// some names the first and counts the others.
func some(names []string) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func (b *LB) line() string {
	full := lbplane.Fullness(b.Used, b.Flows)
	if full != "" {
		full = "  " + strings.ToUpper(full) + ": raise flows in [lb], a reload keeps those that there are"
	}
	return fmt.Sprintf("  lb  %s  flow table for %s, %s  in use about %s%s", b.Counts, text.Grouped(uint64(b.Flows)),
		text.ShortBytes(b.Memory), text.Grouped(b.Used), full)
}
