// SPDX-License-Identifier: Apache-2.0

package insn

import (
	"context"
	"errors"
	"fmt"

	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario/filterrun"
	"culvert/internal/bench/scenario/routerun"
	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/sflow/sflowplane"
)

// sampled are rows with the packets of others, while sFlow is on. The difference to those is the cost of sFlow. None of the packets is
// sampled but in the row -all, where all of them are.
func sampled() []peer.Candidate {
	var all []peer.Candidate
	for _, of := range []struct {
		name    string
		row     peer.Candidate
		options sflowplane.Options
	}{
		{"route", routerun.Mirror4(), sflowplane.Options{Rate: sflowplane.MaxRate}},
		{"filter", filterrun.PassOne(), sflowplane.Options{Rate: sflowplane.MaxRate}},
		// Nearly all notifications of dropped packets are over the limit.
		{"drop", filterrun.DropOne(), sflowplane.Options{Rate: sflowplane.MaxRate, Drops: 1}},
		{"protect", filterrun.Protect(), sflowplane.Options{Rate: sflowplane.MaxRate}},
		{"route-all", routerun.Mirror4(), sflowplane.Options{Rate: 1}},
	} {
		all = append(all, peer.Candidate{Name: "sflow-" + of.name, Device: func(o peer.DeviceOptions) peer.Device {
			d := &sampling{samplable: of.row.Device(o).(samplable), part: sflowplane.NewPart(of.options)}
			d.part.Header, d.part.Buffer = 128, captureBuffer
			d.Join(d.part)
			if of.options.Rate == 1 {
				return samplingAll{d}
			}
			return d
		}})
	}
	return all
}

// samplable is a device whose packets can be sampled.
type samplable interface {
	capturable
	Join(part datapath.Part)
}

// sampling is a device with sFlow.
type sampling struct {
	samplable
	part *sflowplane.Part
}

// never is a number of packets that no row reaches.
const never = 1 << 40

// Attach implements peer.Device. Even with the highest rate a packet would be sampled in one of some thousand runs, if it were drawn.
func (d *sampling) Attach(ctx context.Context, p peer.Path) error {
	if err := d.samplable.Attach(ctx, p); err != nil || d.part.Rate == 1 {
		return err
	}
	return d.eachSlot(func(all []bpfobj.SFlowSflowCount) {
		for cpu := range all {
			all[cpu].Left, all[cpu].Drawn = never, never
		}
	})
}

// eachSlot calls change with what the CPUs have counted for each interface, and writes what change leaves.
func (d *sampling) eachSlot(change func([]bpfobj.SFlowSflowCount)) error {
	m := d.Instance().Map(bpfobj.SFlowMapSflowCounts)
	if m == nil {
		return errors.New("the data plane does not sample")
	}
	for slot := range m.MaxEntries() {
		var all []bpfobj.SFlowSflowCount
		if err := m.Lookup(slot, &all); err != nil {
			return fmt.Errorf("read the counts of sFlow: %w", err)
		}
		change(all)
		if err := m.Put(slot, all); err != nil {
			return fmt.Errorf("write the counts of sFlow: %w", err)
		}
	}
	return nil
}

// samplingAll is a device that samples each packet.
type samplingAll struct{ *sampling }

// Learns makes each packet a new one, so that there are few: each takes room in the buffer.
func (samplingAll) Learns() bool { return false }

// Check tells whether sFlow has seen the packets, and sampled those that it was to sample, and no others.
func (d *sampling) Check() error {
	packets := uint64(0)
	err := d.eachSlot(func(all []bpfobj.SFlowSflowCount) {
		for _, c := range all {
			packets += c.Pool + c.Drawn - c.Left
		}
	})
	if err != nil {
		return err
	}
	c, err := sflowplane.ReadCounted(d.Instance())
	if err != nil {
		return fmt.Errorf("read the counts of sFlow: %w", err)
	}
	samples, discards := uint64(0), uint64(0)
	if d.part.Rate == 1 {
		samples = packets
	}
	if d.part.Drops > 0 {
		discards = packets
	}
	switch {
	case packets == 0:
		return errors.New("sFlow has seen no packet")
	case c.Samples != samples || c.Discards != discards:
		return fmt.Errorf("of %d packets, %d were sampled and %d were dropped", packets, c.Samples, c.Discards)
	case c.Lost > 0:
		return fmt.Errorf("%d samples were lost", c.Lost)
	}
	return nil
}

// Detach implements peer.Device.
func (d *sampling) Detach() error {
	d.part.Close()
	return d.samplable.Detach()
}
