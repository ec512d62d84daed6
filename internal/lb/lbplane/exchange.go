// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// Exchange is the view of a flow table for a process that exchanges flows with other load balancers: which flows have another
// backend than the rings would give them now, and flows that others have told of. The programs go on meanwhile. Its methods may
// not be called at the same time.
type Exchange struct {
	inst *datapath.Instance // names the data plane; another process may attach a newer one under this name

	running ebpf.ProgramID     // the program on the interfaces when the rest was opened
	now     *datapath.Instance // nil while there is no flow table
	flows   flowMap
	table   flowTable
	put     *migrator
	clock   flowClock
	rings   map[uint32]mappedRing // by number of the VIP
}

// FlowKey identifies a flow in the flow table of this machine.
type FlowKey struct{ k flowKey }

// NewFlowKey returns the key of a client's flow to a port of the VIP with that number.
func NewFlowKey(vip uint32, client netip.AddrPort, port uint16) FlowKey {
	return FlowKey{newFlowKey(vip, client, port)}
}

// VIP returns the number of the VIP.
func (k FlowKey) VIP() uint32 { return k.k.vip }

// Client returns the client and the port of the VIP.
func (k FlowKey) Client() (client netip.AddrPort, port uint16) { return k.k.client() }

// FlowTime is the time of a flow's last packet, with the state of the flow.
type FlowTime uint16

// FlowState is the state of a flow: enum lb_flow_state of bpf/lb/flow.h.
type FlowState uint8

// States of flows.
const (
	FlowNew     = FlowState(bpfobj.PipelineLbFlowStateLB_FLOW_NEW)
	FlowOpen    = FlowState(bpfobj.PipelineLbFlowStateLB_FLOW_OPEN)
	FlowClosing = FlowState(bpfobj.PipelineLbFlowStateLB_FLOW_CLOSING)
	FlowUDP     = FlowState(bpfobj.PipelineLbFlowStateLB_FLOW_UDP)
)

// State returns the state of the flow.
func (t FlowTime) State() FlowState { return FlowState(t & 3) }

// Held is what the flow table has of a flow.
type Held struct {
	Backend BackendID
	Time    FlowTime
}

// PutResult is what has become of a flow that was put into the flow table.
type PutResult uint8

// What may become of a flow.
const (
	PutDone PutResult = iota
	PutKept           // the programs have the flow, and it stays as it is
	PutFull           // its bucket has no room, or stays locked
)

// NewExchange returns the view of the flow table of an instance. Follow opens it.
func NewExchange(i *datapath.Instance) *Exchange { return &Exchange{inst: i} }

// Follow opens the flow table that the programs use now, if it is another one than before, and reads the clock. It returns false
// while nothing is attached or the load balancer is off.
func (x *Exchange) Follow() (bool, error) {
	if err := x.follow(); err != nil {
		x.Close()
		return false, fmt.Errorf("looking at the flows of %s: %w", x.inst.Name(), err)
	}
	if x.now == nil {
		return false, nil
	}
	var err error
	if x.clock, err = x.flows.options.clock(); err != nil {
		return false, fmt.Errorf("looking at the flows of %s: %w", x.inst.Name(), err)
	}
	return true, nil
}

func (x *Exchange) follow() error {
	if x.inst.Temporary() {
		if x.now != nil || OptionsOf(x.inst) == nil {
			return nil
		}
		return x.open(x.inst)
	}
	running := x.inst.RunningProgram()
	switch {
	case running == 0: // detached
		x.Close()
		return nil
	case running == x.running:
		return nil
	}
	now, err := x.inst.Now()
	if bpfobj.NotExist(err) {
		x.Close()
		return nil // detached meanwhile
	}
	if err != nil {
		return err
	}
	x.Close()
	x.running = running
	if OptionsOf(now) == nil {
		now.Close()
		return nil
	}
	return x.open(now)
}

func (x *Exchange) open(i *datapath.Instance) (err error) {
	x.now, x.flows = i, flowsOf(i)
	if x.table, err = x.flows.open(0, x.flows.buckets(), unix.PROT_READ); err != nil {
		return err
	}
	if x.put, err = x.flows.loadMigrator(); err != nil {
		return err
	}
	return x.readRings()
}

// Plane returns the load balancer whose flow table it is. It is valid until the next call of Follow.
func (x *Exchange) Plane() *Plane { return &Plane{inst: x.now} }

// Close closes what Follow has opened. Follow opens it again.
func (x *Exchange) Close() {
	x.closeRings()
	if x.put != nil {
		x.put.Close()
	}
	if x.table.mapped != nil {
		x.table.close()
	}
	if x.now != nil && x.now != x.inst {
		x.now.Close()
	}
	x.put, x.table, x.now, x.running = nil, flowTable{}, nil, 0
}

// Room returns the number of flows that the table is made for.
func (x *Exchange) Room() int { return x.flows.options.Flows }

// Find returns what the table has of a flow, expired or not.
func (x *Exchange) Find(k FlowKey) (h Held, ok bool) {
	hash := k.k.hash(x.flows.secret)
	b, tag := &x.table.buckets[scaled(hash, uint32(len(x.table.buckets)))], flowTag(hash)
	for range readTries {
		busy := false
		for way := range b.Tag {
			if b.Tag[way] != tag {
				continue
			}
			found, backend, whole := readEntry(&b.Entry[way])
			if whole && found == k.k && backend != 0 {
				return Held{backend, FlowTime(b.Time[way])}, true
			}
			busy = busy || !whole
		}
		if !busy {
			break
		}
	}
	return Held{}, false
}

// Put inserts a flow. It takes no room from a flow that has not expired. An entry of the flow that is as was is replaced; was may be
// nil. Any other entry of the flow stays.
func (x *Exchange) Put(k FlowKey, h Held, was *Held) (PutResult, error) {
	var before *flowEntry
	if was != nil {
		before = &flowEntry{backend: was.Backend, time: uint16(was.Time)}
	}
	done, err := x.put.insertModestly(flowEntry{k.k, k.k.hash(x.flows.secret), h.Backend, uint16(h.Time)}, before)
	if err != nil {
		return PutFull, fmt.Errorf("inserting a flow into the table of %s: %w", x.inst.Name(), err)
	}
	switch done {
	case migrateDone:
		return PutDone, nil
	case migrateKept:
		return PutKept, nil
	}
	return PutFull, nil
}

// Idle returns the time since the last packet of a flow, in steps of Tick, as of the last call of Follow.
func (x *Exchange) Idle(t FlowTime) time.Duration {
	return time.Duration(x.clock.age(uint16(t))) * Tick
}

// Expired returns whether a flow has timed out.
func (x *Exchange) Expired(t FlowTime) bool { return x.clock.expired(uint16(t)) }

// At returns the time of a flow with that state whose last packet was so long ago. It is rounded to the past. It returns false if
// the flow has timed out.
func (x *Exchange) At(s FlowState, idle time.Duration) (FlowTime, bool) {
	ticks := uint32((idle + Tick - 1) / Tick)
	if ticks >= uint32(x.clock.idle[s&3]) {
		return 0, false
	}
	return FlowTime((x.clock.now-ticks)&maxTicks<<2 | uint32(s&3)), true
}

// Deviating calls visit for each flow that has not timed out and has another backend than its ring would give it now. Flows of
// VIPs with server IDs in QUIC connection IDs are left out: there the ID selects the backend.
func (x *Exchange) Deviating(visit func(FlowKey, Held)) {
	o := x.flows.options
	x.table.visit(func(k flowKey, backend BackendID, t uint16) bool {
		r, ok := x.rings[k.vip]
		if !ok || backend == 0 || x.clock.expired(t) {
			return true
		}
		if r.ids == nil || r.ids[o.position(r.vip, r.proto, k)] != backend {
			visit(FlowKey{k}, Held{backend, FlowTime(t)})
		}
		return true
	})
}
