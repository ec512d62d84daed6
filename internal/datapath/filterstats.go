// SPDX-License-Identifier: Apache-2.0

package datapath

import "culvert/internal/stats"

// FilterStats implements stats.FilterSource.
func (i *Instance) FilterStats() (*stats.Filter, error) {
	f, err := i.Filter()
	if err != nil || len(f.Rules) == 0 && len(f.Services) == 0 {
		return nil, err
	}
	c, err := i.FilterCounters()
	if err != nil {
		return nil, err
	}
	limits := make(map[string]bool)
	for _, r := range f.Rules {
		limits[r.Name] = r.Action == FilterLimit
	}
	out := &stats.Filter{Short: c.Short.Packets, Malformed: c.Malformed.Packets}
	for _, r := range c.Rules {
		out.Rules = append(out.Rules, stats.FilterRule{
			Name: r.Name, Packets: r.Matched.Packets, Bytes: r.Matched.Bytes, Limit: limits[r.Name], OverPackets: r.Over.Packets,
		})
	}
	return out, nil
}
