// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/bench/report"
)

// OrderWindow is how far below a flow's largest sequence number a Sink remembers which numbers have arrived. A packet with a
// smaller number counts as reordered and late, never as a duplicate. Sequence numbers have 28 bits, so the loss of 134
// million packets in a row looks like a step back.
const OrderWindow = 960

// errNoStamps is the error for reading the order of packets from a sink that does not read stamps.
var errNoStamps = errors.New("the sink does not read stamps: set SinkOptions.Flows")

// Order reads the order of the packets of all flows together, since the sink was attached or Reset. Its Missing counts the
// gaps in the sequence numbers. Packets lost at the end of a flow leave no gap: if the number of packets sent is known, use
// the function Missing.
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

// FlowOrders reads the same as Order for each flow, indexed by its number.
func (s *Sink) FlowOrders() ([]report.Order, error) {
	if s.flows == 0 {
		return nil, errNoStamps
	}
	keys, states := make([]uint32, s.flows), make([]benchSinkFlowState, s.flows)
	var cursor ebpf.MapBatchCursor
	// A batch that reads the whole map ends with ErrKeyNotExist.
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

// gaps is the number of sequence numbers, from that of the first packet to the largest, that did not arrive.
func (f *benchSinkFlowState) gaps() uint64 {
	if f.Packets == 0 {
		return 0
	}
	// Packets with numbers below the first fill no gap. A late packet may be a duplicate that was not recognized, so more may
	// have arrived than there are numbers.
	span, arrived := f.Advance+1, f.Packets-f.Duplicates-f.Early
	return span - min(span, arrived)
}

// Missing returns o with Missing set to the number of packets sent that did not arrive.
func Missing(o report.Order, sent uint64) report.Order {
	o.Missing = sent - min(sent, o.Packets-o.Duplicates)
	return o
}

// Reset clears what the sink has read from stamps, so that Order and Latency begin anew. No packets should be on their way
// meanwhile.
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
