// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"slices"

	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
)

// Missing finds the rows whose device cannot be used on this machine. The errors, by row, say what is missing. If a row in
// o.Rows is among them, Missing returns an error instead.
func (o Options) Missing(rows []peer.Candidate) (map[string]error, error) {
	missing := map[string]error{}
	for _, c := range rows {
		if c.Device == nil || missing[c.Name] != nil {
			continue
		}
		p, ok := c.Device(o.DeviceOptions()).(peer.Optional)
		if !ok {
			continue
		}
		err := p.Available()
		if err == nil {
			continue
		}
		if slices.Contains(o.Rows, c.Name) {
			return nil, fmt.Errorf("set %s up: %w", c.Name, err)
		}
		missing[c.Name] = err
		KeepLine(o.Progress, fmt.Sprintf("leaving %s out: %v", c.Name, err))
	}
	return missing, nil
}

// split separates the group's rows: those to measure, and reports of those that are missing.
func (g *group) split(missing map[string]error) (available []peer.Candidate, absent []report.Row) {
	for _, c := range g.rows {
		if err := missing[c.Name]; err != nil {
			absent = append(absent, report.Row{Name: c.Name + g.suffix(), FrameSize: g.size, Note: "not measured: " + err.Error()})
			continue
		}
		available = append(available, c)
	}
	return available, absent
}

// enoughCPUs returns the groups that need no more than allowed CPUs. Leaving a group out is an error if o.CPUs is set.
func (o Options) enoughCPUs(groups []*group, allowed int) ([]*group, error) {
	var available []*group
	for _, g := range groups {
		if g.cpus <= allowed {
			available = append(available, g)
			continue
		}
		missing := fmt.Errorf("rows with %s need %d CPUs, and this process may use %d (see taskset(1) and 'nproc --all')",
			g.suffix(), g.cpus, allowed)
		if len(o.CPUs) > 0 {
			return nil, fmt.Errorf("%w: use --cpus 1", missing)
		}
		KeepLine(o.Progress, fmt.Sprintf("leaving rows out: %v", missing))
	}
	return available, nil
}
