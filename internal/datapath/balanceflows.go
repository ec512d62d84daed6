// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
)

// balanceFlowStates are the names of enum lb_flow_state, balanceEventNames those of enum lb_event.
var (
	balanceFlowStates = sync.OnceValue(func() (names [4]string) {
		for name, value := range bpfobj.EnumNames(bpfobj.LoadPipeline, "lb_flow_state") {
			names[value] = bpfobj.FieldName(strings.TrimPrefix(name, "LB_FLOW_"))
		}
		return names
	})
	balanceEventNames = sync.OnceValue(func() map[string]uint32 {
		names := make(map[string]uint32)
		for name, value := range bpfobj.EnumNames(bpfobj.LoadPipeline, "lb_event") {
			if rest, ok := strings.CutPrefix(name, "LB_EVENT_"); ok {
				names[bpfobj.FieldName(rest)] = uint32(value)
			}
		}
		return names
	})
)

// balanceStretch is how many buckets are mapped at once: 64 MiB.
const balanceStretch = 1 << 17

// visitEntries calls visit for what stands in the flow table, with its time and state, until it returns false. The programs
// go on meanwhile: an entry that is written at that moment is left out.
func (p *BalancePlane) visitEntries(visit func(k balanceKey, owner BalanceOwner, t uint16) bool) error {
	m := p.inst.maps[bpfobj.PipelineMapLbFlows]
	for first := uint32(0); first < m.MaxEntries(); first += balanceStretch {
		table, err := openBalanceTable(m, first, min(balanceStretch, m.MaxEntries()-first), unix.PROT_READ)
		if err != nil {
			return fmt.Errorf("reading the flows of %s: %w", p.Name(), err)
		}
		goOn := table.visit(visit)
		table.close()
		if !goOn {
			return nil
		}
	}
	return nil
}

func (t balanceTable) visit(visit func(k balanceKey, owner BalanceOwner, t uint16) bool) bool {
	for n := range t.buckets {
		b := &t.buckets[n]
		for way, tag := range b.Tag {
			if tag == 0 {
				continue
			}
			k, owner, ok := balanceRead(&b.Entry[way])
			if ok && !visit(k, owner, b.Time[way]) {
				return false
			}
		}
	}
	return true
}

// Flows calls visit for each entry of the flow table, those that have expired too, until it returns false. The programs
// are not disturbed: flows that come or go meanwhile may or may not be among them. It takes about a second for ten
// million, and what visit takes.
func (p *BalancePlane) Flows(visit func(BalanceFlow) bool) error {
	c, err := p.inst.Balance().clock()
	if err != nil {
		return fmt.Errorf("reading the flows of %s: %w", p.Name(), err)
	}
	return p.visitEntries(func(k balanceKey, owner BalanceOwner, t uint16) bool { return visit(c.flow(k, owner, t)) })
}

func (c balanceClock) flow(k balanceKey, owner BalanceOwner, t uint16) BalanceFlow {
	f := BalanceFlow{
		VIP: k.vip, Owner: owner, State: balanceFlowStates()[t&3], Idle: time.Duration(c.age(t)) * BalanceTick, Expired: c.expired(t),
	}
	f.Client, f.Port = k.client()
	return f
}

// FlowCounts returns how many flows each owner has, without those that have expired.
func (p *BalancePlane) FlowCounts() (map[BalanceOwner]uint64, error) {
	c, err := p.inst.Balance().clock()
	if err != nil {
		return nil, fmt.Errorf("counting the flows of %s: %w", p.Name(), err)
	}
	counts := make(map[BalanceOwner]uint64)
	err = p.visitEntries(func(_ balanceKey, owner BalanceOwner, t uint16) bool {
		if !c.expired(t) {
			counts[owner]++
		}
		return true
	})
	return counts, err
}

// FindFlow looks for the entry of a client's flow to a port of a VIP, given by its number; false if there is none. One
// that has expired is found too.
func (p *BalancePlane) FindFlow(vip uint32, client netip.AddrPort, port uint16) (f BalanceFlow, ok bool, err error) {
	fail := func(err error) (BalanceFlow, bool, error) {
		return BalanceFlow{}, false, fmt.Errorf("looking for the flow of %v in %s: %w", client, p.Name(), err)
	}
	m := p.inst.maps[bpfobj.PipelineMapLbFlows]
	key := newBalanceKey(vip, client, port)
	hash := key.hash(p.inst.balanceSecret())
	table, err := openBalanceTable(m, scaled(hash, m.MaxEntries()), 1, unix.PROT_READ)
	if err != nil {
		return fail(err)
	}
	defer table.close()
	c, err := p.inst.Balance().clock()
	if err != nil {
		return fail(err)
	}
	b, tag := &table.buckets[0], balanceTag(hash)
	for range balanceReads {
		busy := false
		for way := range b.Tag {
			if b.Tag[way] != tag {
				continue
			}
			k, owner, whole := balanceRead(&b.Entry[way])
			if whole && k == key {
				return c.flow(k, owner, b.Time[way]), true, nil
			}
			busy = busy || !whole
		}
		if !busy {
			break
		}
	}
	return BalanceFlow{}, false, nil
}

// balanceReads is how often a flow is looked for while programs write what may be its entry.
const balanceReads = 1000

// Events returns what has happened to a VIP, given by its number; events that have not are left out.
func (p *BalancePlane) Events(vip uint32) (BalanceEvents, error) {
	events := make(BalanceEvents)
	for name, n := range balanceEventNames() {
		var perCPU []uint64
		if err := p.inst.maps[bpfobj.PipelineMapLbEvents].Lookup(vip*balanceEventCount+n, &perCPU); err != nil {
			return nil, fmt.Errorf("reading the events of VIP %d of %s: %w", vip, p.Name(), err)
		}
		for _, c := range perCPU {
			events[name] += c
		}
		if events[name] == 0 {
			delete(events, name)
		}
	}
	return events, nil
}

// balanceEventCount is LB_EVENTS of bpf/lb/maps.h: room for events of a VIP.
const balanceEventCount = uint32(bpfobj.PipelineLbEventLB_EVENTS)

// ClearEvents sets a VIP's events to 0, before its number is used again.
func (p *BalancePlane) ClearEvents(vip uint32) error {
	zero := make([]uint64, ebpf.MustPossibleCPU())
	for n := range balanceEventCount {
		if err := p.inst.maps[bpfobj.PipelineMapLbEvents].Put(vip*balanceEventCount+n, zero); err != nil {
			return fmt.Errorf("clearing the events of VIP %d of %s: %w", vip, p.Name(), err)
		}
	}
	return nil
}
