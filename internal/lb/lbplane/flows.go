// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
)

// flowStates are the names of enum lb_flow_state, eventNames those of enum lb_event.
var (
	flowStates = sync.OnceValue(func() (names [4]string) {
		for name, value := range bpfobj.EnumNames(bpfobj.LoadPipeline, "lb_flow_state") {
			names[value] = bpfobj.FieldName(strings.TrimPrefix(name, "LB_FLOW_"))
		}
		return names
	})
	eventNames = sync.OnceValue(func() map[string]uint32 {
		names := make(map[string]uint32)
		for name, value := range bpfobj.EnumNames(bpfobj.LoadPipeline, "lb_event") {
			if rest, ok := strings.CutPrefix(name, "LB_EVENT_"); ok {
				names[bpfobj.FieldName(rest)] = uint32(value)
			}
		}
		return names
	})
)

// tableStretch is the number of buckets that are mapped at once: 64 MiB.
const tableStretch = 1 << 17

// visit calls visit for each entry of the flow table until it returns false. t has the time and state of the entry. The
// programs go on meanwhile. An entry that is being written is skipped.
func (f flowMap) visit(visit func(k flowKey, backend BackendID, t uint16) bool) error {
	for first := uint32(0); first < f.buckets(); first += tableStretch {
		table, err := f.open(first, min(tableStretch, f.buckets()-first), unix.PROT_READ)
		if err != nil {
			return fmt.Errorf("reading the flows of %s: %w", f.of, err)
		}
		goOn := table.visit(visit)
		table.close()
		if !goOn {
			return nil
		}
	}
	return nil
}

func (t flowTable) visit(visit func(k flowKey, backend BackendID, t uint16) bool) bool {
	for n := range t.buckets {
		b := &t.buckets[n]
		for way, tag := range b.Tag {
			if tag == 0 {
				continue
			}
			k, backend, ok := readEntry(&b.Entry[way])
			if ok && !visit(k, backend, b.Time[way]) {
				return false
			}
		}
	}
	return true
}

// Flows calls visit for each entry of the flow table, expired ones too, until it returns false. It does not disturb the
// programs: flows that come or go meanwhile may or may not be visited. Ten million flows take about a second, and the time
// of visit.
func (p *Plane) Flows(visit func(Flow) bool) error {
	c, err := OptionsOf(p.inst).clock()
	if err != nil {
		return fmt.Errorf("reading the flows of %s: %w", p.Name(), err)
	}
	return flowsOf(p.inst).visit(func(k flowKey, backend BackendID, t uint16) bool { return visit(c.flow(k, backend, t)) })
}

func (c flowClock) flow(k flowKey, backend BackendID, t uint16) Flow {
	f := Flow{
		VIP: k.vip, Backend: backend, State: flowStates()[t&3], Idle: time.Duration(c.age(t)) * Tick, Expired: c.expired(t),
	}
	f.Client, f.Port = k.client()
	return f
}

// FlowCounts returns the number of flows of each backend, without expired ones.
func (p *Plane) FlowCounts() (map[BackendID]uint64, error) {
	c, err := OptionsOf(p.inst).clock()
	if err != nil {
		return nil, fmt.Errorf("counting the flows of %s: %w", p.Name(), err)
	}
	counts := make(map[BackendID]uint64)
	err = flowsOf(p.inst).visit(func(_ flowKey, backend BackendID, t uint16) bool {
		if !c.expired(t) {
			counts[backend]++
		}
		return true
	})
	return counts, err
}

// FindFlow returns the flow of a client to a port of the VIP with that number, expired or not; false if the flow table does
// not have it.
func (p *Plane) FindFlow(vip uint32, client netip.AddrPort, port uint16) (flow Flow, ok bool, err error) {
	return flowsOf(p.inst).find(vip, client, port)
}

func (f flowMap) find(vip uint32, client netip.AddrPort, port uint16) (flow Flow, ok bool, err error) {
	fail := func(err error) (Flow, bool, error) {
		return Flow{}, false, fmt.Errorf("looking for the flow of %v in %s: %w", client, f.of, err)
	}
	key := newFlowKey(vip, client, port)
	hash := key.hash(f.secret)
	table, err := f.open(scaled(hash, f.buckets()), 1, unix.PROT_READ)
	if err != nil {
		return fail(err)
	}
	defer table.close()
	c, err := f.options.clock()
	if err != nil {
		return fail(err)
	}
	b, tag := &table.buckets[0], flowTag(hash)
	for range readTries {
		busy := false
		for way := range b.Tag {
			if b.Tag[way] != tag {
				continue
			}
			k, backend, whole := readEntry(&b.Entry[way])
			if whole && k == key {
				return c.flow(k, backend, b.Time[way]), true, nil
			}
			busy = busy || !whole
		}
		if !busy {
			break
		}
	}
	return Flow{}, false, nil
}

// readTries is how often find reads a bucket again in which an entry that may be the flow's is being written.
const readTries = 1000

// EventNames returns the names of all events, sorted.
func EventNames() []string { return slices.Sorted(maps.Keys(eventNames())) }

// Events returns the events of the VIP with that number. Counters that are 0 are left out.
func (p *Plane) Events(vip uint32) (Events, error) {
	events := make(Events)
	for name, n := range eventNames() {
		var perCPU []uint64
		if err := p.inst.Map(bpfobj.PipelineMapLbEvents).Lookup(vip*eventCount+n, &perCPU); err != nil {
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

// eventCount is LB_EVENTS of bpf/lb/maps.h: the number of counters of a VIP.
const eventCount = uint32(bpfobj.PipelineLbEventLB_EVENTS)

// ClearEvents sets the events of the VIP with that number to 0, before the number is used again.
func (p *Plane) ClearEvents(vip uint32) error {
	zero := make([]uint64, ebpf.MustPossibleCPU())
	for n := range eventCount {
		if err := p.inst.Map(bpfobj.PipelineMapLbEvents).Put(vip*eventCount+n, zero); err != nil {
			return fmt.Errorf("clearing the events of VIP %d of %s: %w", vip, p.Name(), err)
		}
	}
	return nil
}
