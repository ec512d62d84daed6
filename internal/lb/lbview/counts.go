// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"fmt"

	"culvert/internal/datapath"
	"culvert/internal/lb/lbplane"
)

// Counts is the summary of a load balancer for 'culvert status'.
type Counts struct {
	VIPs     int `json:"vips"`
	Backends int `json:"backends"`
	// Down is the number of backends whose checks fail or that cannot be reached, Drained that of backends with weight 0.
	Down    int `json:"down"`
	Drained int `json:"drained"`
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
	case b.Weight == 0 || b.Drained:
		c.Drained++
	}
}

// String returns the numbers of VIPs and backends in words.
func (c Counts) String() string {
	if c.VIPs == 0 {
		return "no VIPs: add one with 'culvert lb vip add'"
	}
	s := plural(c.VIPs, "VIP") + ", " + plural(c.Backends, "backend")
	if c.Down > 0 {
		s += fmt.Sprintf(", %d down", c.Down)
	}
	if c.Drained > 0 {
		s += fmt.Sprintf(", %d drained", c.Drained)
	}
	return s
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
	for _, vip := range v.state.VIPs {
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
