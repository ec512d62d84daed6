// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"slices"

	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
)

// Missing finds the rows whose peers the machine lacks, by name, with what is missing. It is an error if they were
// asked for by name.
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

// split parts the group's rows into those to measure and the reports of those that are missing.
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

// enoughCPUs leaves out the groups that need more CPUs than the process may use. It is an error if they were asked for.
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
