// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/show"
	"culvert/internal/show/text"
	"culvert/internal/show/usage"
)

// FlowsOptions select flows.
type FlowsOptions struct {
	// On is the name of the data plane, "" for the only load balancer here.
	On string
	// Service, Backend and Client restrict the flows. Those that are nil or invalid do not.
	Service *lb.Service
	Backend netip.Addr
	Client  netip.Prefix
	// Limit is the largest number of flows to list, 0 for all.
	Limit int
	// Count shows numbers of flows by VIP and backend instead of flows.
	Count, JSON bool
}

// Flow is a flow in the output of 'culvert lb flows -j'. Later versions may add fields, but never rename them.
type Flow struct {
	Client  string `json:"client"`
	Service string `json:"service"`
	// Backend is empty if the backend has been deleted. The flow's next packet then gets another one.
	Backend string  `json:"backend,omitempty"`
	State   string  `json:"state"`
	Idle    float64 `json:"idle_seconds"`
}

// FlowList is what 'culvert lb flows -j' prints, which writes it flow by flow.
type FlowList struct {
	Flows []Flow `json:"flows"`
}

// FlowCount is the number of flows of a VIP that a backend has.
type FlowCount struct {
	VIP     string `json:"vip"`
	Backend string `json:"backend,omitempty"`
	Flows   uint64 `json:"flows"`
}

// FlowCounts is the output of 'culvert lb flows --totals -j'.
type FlowCounts struct {
	// Total is how many flows there are.
	Total uint64 `json:"flows"`
	// Counts are those of VIPs and backends.
	Counts []FlowCount `json:"counts"`
}

// Flows writes the flows of the flow table to out, in its order, without keeping them in memory.
func Flows(o FlowsOptions, out io.Writer) error {
	if o.Limit < 0 {
		return usage.Errorf("-n %d: use a number of flows, or 0 for all", o.Limit)
	}
	return with(o.On, func(v *view) error {
		keep, err := v.keeper(o)
		if err != nil {
			return err
		}
		b := bufio.NewWriterSize(out, 1<<16)
		switch {
		case o.Count:
			err = v.writeCounts(b, keep, o.JSON)
		case o.JSON:
			err = v.writeJSON(b, keep, o.Limit)
		default:
			err = v.writeFlows(b, keep, o.Limit)
		}
		if err != nil {
			return err
		}
		return b.Flush()
	})
}

// keeper returns a function that returns whether a flow is selected.
func (v *view) keeper(o FlowsOptions) (func(lbplane.Flow) bool, error) {
	vip, port, anyVIP := uint32(0), uint16(0), true
	if o.Service != nil {
		found, p, err := v.find(*o.Service)
		if err != nil {
			return nil, err
		}
		vip, port, anyVIP = found.Number, p, false
	}
	ids := make(map[lbplane.BackendID]bool)
	for _, s := range v.state.VIPs {
		for _, b := range s.Backends {
			if b.Addr == o.Backend {
				ids[b.ID] = true
			}
		}
	}
	if o.Backend.IsValid() && len(ids) == 0 {
		return nil, fmt.Errorf("no backend %s on %s: 'culvert lb show' lists those that are there", o.Backend, v.inst.Name())
	}
	return func(f lbplane.Flow) bool {
		return !f.Expired && (anyVIP || f.VIP == vip && (port == 0 || f.Port == port)) && (len(ids) == 0 || ids[f.Backend]) &&
			(!o.Client.IsValid() || o.Client.Contains(f.Client.Addr()))
	}, nil
}

// names has the names of VIPs and backends.
type names struct {
	vips     map[uint32]lb.Service
	backends map[lbplane.BackendID]string
}

func (v *view) names() names {
	n := names{make(map[uint32]lb.Service), make(map[lbplane.BackendID]string)}
	for _, vip := range v.state.VIPs {
		n.vips[vip.Number] = vip.Service
		for _, b := range vip.Backends {
			n.backends[b.ID] = b.Addr.String()
		}
	}
	return n
}

func (n names) flow(f lbplane.Flow) Flow {
	out := Flow{Client: f.Client.String(), Backend: n.backends[f.Backend], State: f.State, Idle: f.Idle.Seconds()}
	if s, ok := n.vips[f.VIP]; ok {
		s.Port = f.Port
		out.Service = s.String()
	} else { // the VIP has gone
		out.Service = fmt.Sprintf("port %d", f.Port)
	}
	return out
}

// list calls write for the selected flows until it returns an error.
func (v *view) list(keep func(lbplane.Flow) bool, limit int, write func(Flow) error) error {
	names, left := v.names(), limit
	var failed error
	err := v.plane.Flows(func(f lbplane.Flow) bool {
		if !keep(f) {
			return true
		}
		failed = write(names.flow(f))
		left--
		return failed == nil && left != 0
	})
	return cmp.Or(failed, err)
}

const flowFormat = "%-24s  %-24s  %-20s  %-7s  %s\n"

func (v *view) writeFlows(out *bufio.Writer, keep func(lbplane.Flow) bool, limit int) error {
	if _, err := fmt.Fprintf(out, flowFormat, "CLIENT", "SERVICE", "BACKEND", "STATE", "IDLE"); err != nil {
		return err
	}
	return v.list(keep, limit, func(f Flow) error {
		_, err := fmt.Fprintf(out, flowFormat, f.Client, f.Service, gone(f.Backend), f.State, idle(f.Idle))
		return err
	})
}

func gone(backend string) string {
	if backend == "" {
		return "(gone)"
	}
	return backend
}

// idle formats an idle time in seconds. The resolution of the flow table is about four seconds.
func idle(seconds float64) string { return fmt.Sprintf("%.0fs", seconds) }

// writeJSON writes {"flows": [...]} with a line for each flow.
func (v *view) writeJSON(out *bufio.Writer, keep func(lbplane.Flow) bool, limit int) error {
	before := "{\"flows\": [\n"
	err := v.list(keep, limit, func(f Flow) error {
		line, err := json.Marshal(f)
		if err != nil {
			return err
		}
		_, err = out.WriteString(before + "  " + string(line))
		before = ",\n"
		return err
	})
	if err != nil {
		return err
	}
	if before != ",\n" {
		_, err = out.WriteString("{\"flows\": []}\n")
		return err
	}
	_, err = out.WriteString("\n]}\n")
	return err
}

// count writes the numbers of flows by VIP and backend, 0 too.
func (v *view) count(keep func(lbplane.Flow) bool) ([]FlowCount, error) {
	type key struct {
		vip uint32
		id  lbplane.BackendID
	}
	sums, names := make(map[key]uint64), v.names()
	err := v.plane.Flows(func(f lbplane.Flow) bool {
		if keep(f) {
			if names.backends[f.Backend] == "" {
				f.Backend = 0
			}
			sums[key{f.VIP, f.Backend}]++
		}
		return true
	})
	counts := []FlowCount{}
	for k, n := range sums {
		c := FlowCount{Backend: names.backends[k.id], Flows: n}
		if s, ok := names.vips[k.vip]; ok {
			c.VIP = s.String()
		}
		counts = append(counts, c)
	}
	slices.SortFunc(counts, func(a, b FlowCount) int {
		return cmp.Or(cmp.Compare(a.VIP, b.VIP), cmp.Compare(b.Flows, a.Flows), cmp.Compare(a.Backend, b.Backend))
	})
	return counts, err
}

func (v *view) writeCounts(out *bufio.Writer, keep func(lbplane.Flow) bool, asJSON bool) error {
	counts, err := v.count(keep)
	if err != nil {
		return err
	}
	total := uint64(0)
	t := text.Table{Right: []bool{false, false, true}}
	t.Add("VIP", "BACKEND", "FLOWS")
	for _, c := range counts {
		vip := c.VIP
		if vip == "" {
			vip = "(gone)"
		}
		t.Add(vip, gone(c.Backend), text.Grouped(c.Flows))
		total += c.Flows
	}
	if asJSON {
		return show.JSON(out, FlowCounts{total, counts})
	}
	t.Add("all", "", text.Grouped(total))
	for _, line := range t.Lines() {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}
