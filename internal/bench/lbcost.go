// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/bench/report"
	"culvert/internal/datapath"
)

// lbCost is culvert's load balancer alone, whose cost is to be measured.
type lbCost struct {
	lbCulvert
	// clients is how many flows take turns. All are known beforehand, or if fresh each packet is the SYN of another one.
	clients int
	fresh   bool
}

// lbCostSize says how many flows the kinds of packets have whose cost is measured.
type lbCostSize struct {
	// cold flows are known and so many that caches do not hold them, 0 for no such packets. Their table has room for table.
	cold, table int
	// fresh flows are new ones.
	fresh int
}

// lbCosts are the kinds of packets whose cost is measured.
func lbCosts(size lbCostSize) []candidate {
	var all []candidate
	add := func(name string, d lbCost) {
		all = append(all, candidate{name: "lb-" + name, device: func(Terms) Device { one := d; return &one }})
	}
	known := func(encap datapath.BalanceEncap, v6 bool) lbCost {
		return lbCost{lbCulvert: lbCulvert{encap: encap, v6: v6}, clients: lbClients}
	}
	add("known", known(datapath.BalanceIPIP, false))
	add("known-gue", known(datapath.BalanceGUE, false))
	add("known-l2", known(datapath.BalanceL2, false))
	add("known6", known(datapath.BalanceIPIP, true))
	if size.cold > 0 {
		cold := known(datapath.BalanceIPIP, false)
		cold.clients, cold.flows, cold.insertRate = size.cold, size.table, lbUnlimited
		add("cold", cold)
	}
	fresh := known(datapath.BalanceIPIP, false)
	fresh.clients, fresh.fresh, fresh.insertRate = size.fresh, true, lbUnlimited
	add("new", fresh)
	return all
}

func (d *lbCost) Attach(_ context.Context, p Path) error { return d.attach(p) }

func (d *lbCost) Frames(p Path, _ [][]byte) ([][]byte, error) {
	client := lbClient
	if d.v6 {
		client = lbClient6
	}
	frames := make([][]byte, d.clients)
	for i := range frames {
		frames[i] = lbPacket(client(uint32(i)), d.fresh)
	}
	return Addressed(frames, p.In.MAC, p.Source.MAC), nil
}

// Losses are not asked for: nothing is sent.
func (*lbCost) Losses() (map[string]uint64, error) { return nil, nil }

// Program is what is on In, which redirects.
func (d *lbCost) Program() (*ebpf.Program, uint32) { return d.inst.Program(), xdpRedirect }

func (d *lbCost) learns() bool { return !d.fresh }

// check sees that all flows were known but when they came first, or all of them new.
func (d *lbCost) check() error {
	count, err := d.reasons()
	if err != nil {
		return err
	}
	known, fresh, untracked := count[lbKnown], count[lbNew], count[lbUntracked]
	if untracked > 0 || d.fresh && (known > 0 || fresh == 0) || !d.fresh && (known == 0 || fresh != uint64(d.clients)) {
		return fmt.Errorf("the packets are not those that are to be measured: %d of known flows, %d of new ones, %d not taken into the table",
			known, fresh, untracked)
	}
	return nil
}

// How many packets a round has whose cost is measured: so few that there are enough new flows for all rounds.
const lbCostRepeat = 20_000

// lbCostChecked is how many packets show beforehand that the program does its work.
const lbCostChecked = 64

// runLBCosts measures what culvert's load balancer takes for a packet by itself, net of an empty program, and for a change.
func runLBCosts(ctx context.Context, _ []candidate, g *lbGroup, o Options) (_ *report.Report, err error) {
	var rows []*vethRow
	defer func() {
		for _, row := range rows {
			err = errors.Join(err, row.Teardown())
		}
	}()
	rounds, cpu := 3*o.Rounds, LastCPU()
	size := lbCostSize{cold: lbMillion / 4, table: 10 * lbMillion, fresh: lbCostChecked + rounds*lbCostRepeat}
	if o.Sample > 0 {
		size.cold, size.table = o.Sample, 2*o.Sample
	}
	var subjects []Subject
	for _, c := range lbCosts(size) {
		fmt.Fprintf(o.Progress, "setting up %s\n", c.name)
		row := &vethRow{name: c.name + "@" + g.name, device: c.device(o.Terms()), opts: vethOptions{CPU: cpu}}
		rows = append(rows, row)
		s, err := row.subject(ctx)
		if err != nil {
			return nil, fmt.Errorf("set %s up: %w", row.name, err)
		}
		subjects = append(subjects, s)
	}
	costs, err := Cost(ctx, CostOptions{
		Rounds: rounds, Repeat: lbCostRepeat, Checked: lbCostChecked, CPU: cpu,
		Progress: func(round, rounds int) { fmt.Fprintf(o.Progress, "round %d of %d\n", round, rounds) },
	}, subjects...)
	if err != nil {
		return nil, err
	}
	r := costReport(costs)
	for i, row := range rows {
		if err := didItsWork(row); err != nil {
			return nil, fmt.Errorf("measure %s: %w", row.name, err)
		}
		d := row.device.(*lbCost)
		options := d.inst.Balance()
		r.Rows[i].FrameSize = len(subjects[i].Frames[0])
		r.Rows[i].Note = fmt.Sprintf("the table has room for %d flows and takes %.0f MB", options.Flows, float64(d.inst.BalanceMemory())/1e6)
	}
	ring, err := runRingChanges(ctx, "lb-ring@"+g.name, o)
	r.Rows = append(r.Rows, ring)
	return r, err
}
