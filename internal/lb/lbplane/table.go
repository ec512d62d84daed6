// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// flowMap is the map of a flow table, with the options and the secret that reading it needs.
type flowMap struct {
	flows   *ebpf.Map
	of      string // the name of the instance, for errors
	options *Options
	secret  [secretWords]uint32
}

func flowsOf(i *datapath.Instance) flowMap {
	return flowMap{i.Map(bpfobj.PipelineMapLbFlows), i.Name(), OptionsOf(i), secretOf(i)}
}

// open maps count buckets into memory, beginning with the bucket first.
func (f flowMap) open(first, count uint32, prot int) (flowTable, error) {
	return openFlowTable(f.flows, first, count, prot)
}

// buckets returns the number of buckets.
func (f flowMap) buckets() uint32 { return f.flows.MaxEntries() }

// memory returns the size of the buckets in bytes.
func (f flowMap) memory() uint64 { return uint64(f.flows.ValueSize()) * uint64(f.flows.MaxEntries()) }

// flowTable is a flow table, or a part of one, mapped into the memory of this process. Programs may use it at the same time.
type flowTable struct {
	mapped  []byte
	buckets []bpfobj.PipelineLbBucket
}

// openFlowTable maps count buckets of a flow table into memory, beginning with the bucket first.
func openFlowTable(m *ebpf.Map, first, count uint32, prot int) (t flowTable, err error) {
	const size = int64(unsafe.Sizeof(bpfobj.PipelineLbBucket{}))
	page := int64(unix.Getpagesize())
	skip := int64(first) * size % page
	length := (skip + int64(count)*size + page - 1) / page * page
	if t.mapped, err = unix.Mmap(m.FD(), int64(first)*size-skip, int(length), prot, unix.MAP_SHARED); err != nil {
		return t, fmt.Errorf("mapping the flow table: %w", err)
	}
	t.buckets = unsafe.Slice((*bpfobj.PipelineLbBucket)(unsafe.Pointer(&t.mapped[skip])), count)
	return t, nil
}

func (t flowTable) close() { _ = unix.Munmap(t.mapped) }

// readEntry returns a consistent copy of an entry. It returns false if a writer is at it.
func readEntry(e *bpfobj.PipelineLbEntry) (k flowKey, backend BackendID, ok bool) {
	seq := atomic.LoadUint32(&e.Seq)
	if seq&1 != 0 {
		return k, 0, false
	}
	k.src[0] = atomic.LoadUint64(&e.Src[0])
	k.src[1] = atomic.LoadUint64(&e.Src[1])
	k.ports, k.vip = atomic.LoadUint32(&e.Ports), atomic.LoadUint32(&e.Vip)
	backend = BackendID(atomic.LoadUint32(&e.Backend))
	return k, backend, atomic.LoadUint32(&e.Seq) == seq
}

// flowClock is the clock of the flow table. It counts ticks in 14 bits.
type flowClock struct {
	now  uint32
	idle [4]uint16 // idle times by state, in ticks, as lb_idle of bpf/lb/maps.h
}

func (o *Options) clock() (flowClock, error) {
	var now unix.Timespec // the same clock as bpf_ktime_get_coarse_ns
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return flowClock{}, fmt.Errorf("reading the clock: %w", err)
	}
	return flowClock{now: uint32(now.Nano()>>tickShift) & maxTicks, idle: o.idle()}, nil
}

// idle returns after how many ticks without a packet flows expire, by state.
func (o *Options) idle() (ticks [4]uint16) {
	for state, d := range map[bpfobj.PipelineLbFlowState]time.Duration{
		bpfobj.PipelineLbFlowStateLB_FLOW_NEW:     o.IdleNew,
		bpfobj.PipelineLbFlowStateLB_FLOW_OPEN:    o.IdleTCP,
		bpfobj.PipelineLbFlowStateLB_FLOW_CLOSING: o.IdleClosing,
		bpfobj.PipelineLbFlowStateLB_FLOW_UDP:     o.IdleUDP,
	} {
		ticks[state] = uint16((d + Tick - 1) / Tick)
	}
	return ticks
}

// clockAhead is how many ticks an entry may be newer than a flowClock. The clock is read first, and entries change later.
const clockAhead = 1024

// age returns how many ticks ago an entry had its last packet. t is the time and state of the entry.
func (c flowClock) age(t uint16) uint32 {
	age := (c.now - uint32(t>>2)) & maxTicks
	if age > maxTicks-clockAhead {
		return 0
	}
	return age
}

func (c flowClock) expired(t uint16) bool { return c.age(t) >= uint32(c.idle[t&3]) }

// worth returns how much is lost with an entry. Expired entries are worth 0, flows of one packet more, and all others still
// more. Within these groups a later packet is worth more.
func (c flowClock) worth(t uint16) uint32 {
	if c.expired(t) {
		return 0
	}
	worth := uint32(maxTicks) + 1 - c.age(t)
	if t&3 != uint16(bpfobj.PipelineLbFlowStateLB_FLOW_NEW) {
		worth += maxTicks + 1
	}
	return worth
}
