// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/bench/report"
)

// OrderWindow is how far below a flow's largest number a Sink knows which numbers have come. A packet from further
// below counts as reordered and as late, never as a duplicate. Numbers have 28 bits: a flow that loses 134 million
// packets in a row is taken for one that went back.
const OrderWindow = 960

// errNoStamps is the error for reading what only stamps tell from a sink that does not read them.
var errNoStamps = errors.New("the sink does not read stamps: set SinkOptions.Flows")

// Order reads what the stamps tell of all flows together, since the sink was attached or Reset. Missing is what the
// gaps in the numbers show, and so not what was lost after the last packet of a flow that arrived: call Missing with
// the number of packets sent if it is known.
func (s *Sink) Order() (report.Order, error) {
	flows, err := s.FlowOrders()
	var sum report.Order
	for _, f := range flows {
		sum.Packets += f.Packets
		sum.Missing += f.Missing
		sum.Duplicates += f.Duplicates
		sum.Reordered += f.Reordered
		sum.Late += f.Late
	}
	return sum, err
}

// FlowOrders reads the same as Order for each flow, by its number.
func (s *Sink) FlowOrders() ([]report.Order, error) {
	if s.flows == 0 {
		return nil, errNoStamps
	}
	keys, states := make([]uint32, s.flows), make([]benchSinkFlowState, s.flows)
	var cursor ebpf.MapBatchCursor
	// A batch of the whole map ends with ErrKeyNotExist, because nothing is left.
	n, err := s.objs.Flows.BatchLookup(&cursor, keys, states, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) || n != s.flows {
		return nil, fmt.Errorf("read %d flows of the sink, got %d: %w", s.flows, n, err)
	}
	orders := make([]report.Order, s.flows)
	for i, f := range states[:n] {
		orders[keys[i]] = report.Order{
			Packets:    f.Packets,
			Duplicates: f.Duplicates,
			Reordered:  f.Reordered,
			Late:       f.Late,
			Missing:    f.gaps(),
		}
	}
	return orders, nil
}

// gaps is how many numbers from the first that arrived to the largest did not come.
func (f *benchSinkFlowState) gaps() uint64 {
	if f.Packets == 0 {
		return 0
	}
	// Those of before the first are in no gap. A late packet may be a duplicate that was not recognised.
	span, came := f.Advance+1, f.Packets-f.Duplicates-f.Early
	return span - min(span, came)
}

// Missing is o with those missing that were sent and did not arrive.
func Missing(o report.Order, sent uint64) report.Order {
	o.Missing = sent - min(sent, o.Packets-o.Duplicates)
	return o
}

// Reset forgets what the stamps told, so that Order and Latency begin anew. Nothing should be on its way.
func (s *Sink) Reset() error {
	if s.flows == 0 {
		return errNoStamps
	}
	keys, states := make([]uint32, s.flows), make([]benchSinkFlowState, s.flows)
	for i := range keys {
		keys[i] = uint32(i)
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count the CPUs: %w", err)
	}
	if _, err := s.objs.Flows.BatchUpdate(keys, states, nil); err != nil {
		return fmt.Errorf("reset the flows of the sink: %w", err)
	}
	if err := s.objs.Delays.Put(uint32(0), make([]benchSinkDelayCount, cpus)); err != nil {
		return fmt.Errorf("reset the delays of the sink: %w", err)
	}
	return nil
}
