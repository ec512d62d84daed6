// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"fmt"

	"culvert/internal/datapath"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/peerstate"
	"culvert/internal/lb/sourcestate"
)

// Counts is the summary of a load balancer for 'culvert status'.
type Counts struct {
	VIPs     int `json:"vips"`
	Backends int `json:"backends"`
	// Down is the number of backends whose checks fail or that cannot be reached, Drained that of backends that somebody has drained, and
	// Weightless that of the others with weight 0.
	Down       int `json:"down"`
	Drained    int `json:"drained"`
	Weightless int `json:"weight_zero"`
	// Sources is the number of sources of backends that the process asks, and Troubled names those whose last answer is not in force:
	// they cannot be asked, or are not believed. Both are left out if there are none.
	Sources  int      `json:"sources,omitempty"`
	Troubled []string `json:"troubled_sources,omitempty"`
	// DrainedVIPs are the VIPs that are drained as a whole, left out if there are none.
	DrainedVIPs []string `json:"drained_vips,omitempty"`
	// PeerProblems says in a line each why flows may not survive the loss of a machine, left out without [lb.peers].
	PeerProblems []string `json:"peer_problems,omitempty"`
	// Flows is the number of flows that the flow table is made for, Used an estimate of the number in it.
	Flows  int    `json:"flows"`
	Used   uint64 `json:"flows_used"`
	Memory uint64 `json:"memory_bytes"`
}

func (c *Counts) add(b Backend) {
	c.Backends++
	switch {
	case b.Problem != "" || b.Health.State == lbplane.Down.String():
		c.Down++
	case b.Drained:
		c.Drained++
	case b.Weight == 0:
		c.Weightless++
	}
}

// String returns the numbers of VIPs and backends in words.
func (c Counts) String() string {
	if c.VIPs == 0 {
		return "no VIPs: add one with 'culvert lb vip add'"
	}
	s := plural(c.VIPs, "VIP")
	if n := len(c.DrainedVIPs); n > 0 {
		s += fmt.Sprintf(" (%d drained)", n)
	}
	s += ", " + plural(c.Backends, "backend")
	if c.Down > 0 {
		s += fmt.Sprintf(", %d down", c.Down)
	}
	if c.Drained > 0 {
		s += fmt.Sprintf(", %d drained", c.Drained)
	}
	if c.Weightless > 0 {
		s += fmt.Sprintf(", %d of weight 0", c.Weightless)
	}
	if c.Sources > 0 {
		s += ", " + plural(c.Sources, "source")
	}
	if n := len(c.Troubled); n > 0 {
		s += fmt.Sprintf(" (%d in trouble: culvert lb show)", n)
	}
	return s
}

// addSources counts the sources of backends.
func (c *Counts) addSources(all []sourcestate.Source) {
	for _, s := range all {
		c.Sources++
		if s.Troubled() {
			c.Troubled = append(c.Troubled, fmt.Sprintf("%s of VIP %s: %s", s.Name, s.VIP, s.State))
		}
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Count returns the summary of the load balancer of a data plane, nil if it is off.
func Count(inst *datapath.Instance) (*Counts, error) {
	if lbplane.OptionsOf(inst) == nil {
		return nil, nil
	}
	v, err := newView(inst)
	if err != nil {
		return nil, err
	}
	c := &Counts{VIPs: len(v.state.VIPs), Flows: v.plane.Options().Flows, Memory: lbplane.Memory(inst)}
	if c.Used, err = v.plane.FlowEstimate(); err != nil {
		return nil, err
	}
	peers, err := peerstate.Of(inst)
	if err != nil {
		return nil, err
	}
	for _, p := range peers.Problems() {
		c.PeerProblems = append(c.PeerProblems, p.Text)
	}
	sources, _, err := sourcestate.Of(inst)
	if err != nil {
		return nil, err
	}
	c.addSources(sources)
	for _, vip := range v.state.VIPs {
		if vip.Drained {
			c.DrainedVIPs = append(c.DrainedVIPs, vip.Service.String())
		}
		for _, b := range vip.Backends {
			out, err := v.backend(b, vip.Check != nil)
			if err != nil {
				return nil, err
			}
			c.add(out)
		}
	}
	return c, nil
}
