// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
	"culvert/internal/lb/lbplane"
)

// costDevice is culvert's load balancer, for measuring its cost by itself.
type costDevice struct {
	culvert
	// clients is the number of flows that take turns. All are in the flow table beforehand. If fresh is set none is, and each
	// packet is the SYN of a new flow. With over the SYNs are above the limit of new flows as well, all but one in a second.
	clients     int
	fresh, over bool
}

// CostSize has the numbers of flows of the rows whose cost is measured.
type CostSize struct {
	// cold is the number of known flows of the row with more flows than caches hold. 0 stands for no such row. table is the
	// size of that row's flow table, in flows.
	cold, table int
	// Fresh is the number of new flows.
	Fresh int
}

// Costs returns the rows of culvert's load balancer by itself, one for each kind of packets.
func Costs(size CostSize) []peer.Candidate {
	var all []peer.Candidate
	add := func(name string, d costDevice) {
		all = append(all, peer.Candidate{Name: "lb-" + name, Device: func(peer.DeviceOptions) peer.Device { one := d; return &one }})
	}
	known := func(encap lbplane.Encap, v6 bool) costDevice {
		return costDevice{culvert: culvert{encap: encap, v6: v6}, clients: clients}
	}
	add("known", known(lbplane.IPIP, false))
	add("known-gue", known(lbplane.GUE, false))
	add("known-l2", known(lbplane.L2, false))
	add("known6", known(lbplane.IPIP, true))
	if size.cold > 0 {
		cold := known(lbplane.IPIP, false)
		cold.clients, cold.flows, cold.insertRate = size.cold, size.table, unlimited
		add("cold", cold)
	}
	fresh := known(lbplane.IPIP, false)
	fresh.clients, fresh.fresh, fresh.insertRate = size.Fresh, true, unlimited
	add("new", fresh)
	over := fresh
	over.over, over.insertRate = true, 1
	add("over-limit", over)
	return all
}

func (d *costDevice) Attach(_ context.Context, p peer.Path) error { return d.attach(p) }

func (d *costDevice) Frames(p peer.Path, _ [][]byte) ([][]byte, error) {
	client := clientAddr
	if d.v6 {
		client = clientAddr6
	}
	frames := make([][]byte, d.clients)
	for i := range frames {
		frames[i] = makePacket(client(uint32(i)), d.fresh)
	}
	return load.Addressed(frames, p.In.MAC, p.Source.MAC), nil
}

// Losses implements peer.Device. No packets are sent through the device.
func (*costDevice) Losses() (map[string]uint64, error) { return nil, nil }

// Program implements peer.SingleProgram.
func (d *costDevice) Program() (*ebpf.Program, uint32) { return d.inst.Program(), load.XDPRedirect }

// Learns tells whether flows have to be known before the measurement (see load.Subject).
func (d *costDevice) Learns() bool { return !d.fresh }

// Check returns an error unless each flow was new exactly once and known afterwards or, with fresh, all packets began new
// flows or, with over, hardly any did.
func (d *costDevice) Check() error {
	count, err := d.reasons()
	if err != nil {
		return err
	}
	known, fresh, untracked := count[reasonKnown], count[reasonNew], count[reasonUntracked]
	if d.over {
		if known > 0 || fresh > untracked/100 {
			return fmt.Errorf("the packets are not those that are to be measured: %d of known flows, %d of new ones, %d above the limit",
				known, fresh, untracked)
		}
		return nil
	}
	if untracked > 0 || d.fresh && (known > 0 || fresh == 0) || !d.fresh && (known == 0 || fresh != uint64(d.clients)) {
		return fmt.Errorf("the packets are not those that are to be measured: %d of known flows, %d of new ones, %d not taken into the table",
			known, fresh, untracked)
	}
	return nil
}

// costRepeat is the number of packets in a round. It is small so that there are enough new flows for all rounds.
const costRepeat = 20_000

// costChecked is the number of packets that check the program's verdict beforehand.
const costChecked = 64

// runCosts measures the cost of culvert's load balancer by itself, net of an empty program, and that of changes of a ring.
func runCosts(ctx context.Context, _ []peer.Candidate, g *group, o scenario.Options) (_ *report.Report, err error) {
	var rows []*scenario.VethRow
	defer func() {
		for _, row := range rows {
			err = errors.Join(err, row.Teardown())
		}
	}()
	rounds, cpu := 3*o.Rounds, load.LastCPU()
	size := CostSize{cold: million / 4, table: 10 * million, Fresh: costChecked + rounds*costRepeat}
	if o.Sample > 0 {
		// The table is large enough that no bucket is ever full, whatever the key of its hash. An evicted flow would be new
		// again.
		size.cold, size.table = o.Sample, 20*o.Sample
	}
	var subjects []load.Subject
	for _, c := range Costs(size) {
		fmt.Fprintf(o.Progress, "setting up %s\n", c.Name)
		row := &scenario.VethRow{Label: c.Name + "@" + g.name, Device: c.Device(o.DeviceOptions()), Opts: scenario.VethOptions{CPU: cpu}}
		rows = append(rows, row)
		s, err := row.Subject(ctx)
		if err != nil {
			return nil, fmt.Errorf("set %s up: %w", row.Label, err)
		}
		subjects = append(subjects, s)
	}
	costs, err := load.Cost(ctx, load.CostOptions{
		Rounds: rounds, Repeat: costRepeat, Checked: costChecked, CPU: cpu,
		Progress: func(round, rounds int) { fmt.Fprintf(o.Progress, "round %d of %d\n", round, rounds) },
	}, subjects...)
	if err != nil {
		return nil, err
	}
	r := scenario.CostReport(costs)
	for i, row := range rows {
		if err := scenario.CheckDevice(row); err != nil {
			return nil, fmt.Errorf("measure %s: %w", row.Label, err)
		}
		d := row.Device.(*costDevice)
		options := lbplane.OptionsOf(d.inst)
		r.Rows[i].FrameSize = len(subjects[i].Frames[0])
		r.Rows[i].Note = fmt.Sprintf("the table has room for %d flows and takes %.0f MB", options.Flows, float64(lbplane.Memory(d.inst))/1e6)
	}
	ring, err := runRingChanges(ctx, "lb-ring@"+g.name, o)
	r.Rows = append(r.Rows, ring)
	return r, err
}
