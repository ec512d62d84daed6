// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
)

// balanceTable is a flow table, or a part of one, in the memory of this process. The programs work on it meanwhile.
type balanceTable struct {
	mapped  []byte
	buckets []bpfobj.PipelineLbBucket
}

// openBalanceTable maps buckets of a flow table into memory, from the first on.
func openBalanceTable(m *ebpf.Map, first, count uint32, prot int) (t balanceTable, err error) {
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

func (t balanceTable) close() { _ = unix.Munmap(t.mapped) }

// balanceRead returns an entry as it stands; false while somebody writes it.
func balanceRead(e *bpfobj.PipelineLbEntry) (k balanceKey, owner BalanceOwner, ok bool) {
	seq := atomic.LoadUint32(&e.Seq)
	if seq&1 != 0 {
		return k, 0, false
	}
	k.src[0] = atomic.LoadUint64(&e.Src[0])
	k.src[1] = atomic.LoadUint64(&e.Src[1])
	k.ports, k.vip = atomic.LoadUint32(&e.Ports), atomic.LoadUint32(&e.Vip)
	owner = BalanceOwner(atomic.LoadUint32(&e.Backend))
	return k, owner, atomic.LoadUint32(&e.Seq) == seq
}

// balanceClock is how the flow table tells the time: 14 bits of ticks.
type balanceClock struct {
	now  uint32
	idle [4]uint16 // as lb_idle of bpf/lb/maps.h
}

func (o *BalanceOptions) clock() (balanceClock, error) {
	var now unix.Timespec // that of bpf_ktime_get_coarse_ns
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return balanceClock{}, fmt.Errorf("reading the clock: %w", err)
	}
	return balanceClock{now: uint32(now.Nano()>>balanceTickShift) & balanceTicks, idle: o.idle()}, nil
}

// idle returns how long flows stay, by state, in ticks.
func (o *BalanceOptions) idle() (ticks [4]uint16) {
	for state, d := range map[bpfobj.PipelineLbFlowState]time.Duration{
		bpfobj.PipelineLbFlowStateLB_FLOW_NEW:     o.IdleNew,
		bpfobj.PipelineLbFlowStateLB_FLOW_OPEN:    o.IdleTCP,
		bpfobj.PipelineLbFlowStateLB_FLOW_CLOSING: o.IdleClosing,
		bpfobj.PipelineLbFlowStateLB_FLOW_UDP:     o.IdleUDP,
	} {
		ticks[state] = uint16((d + BalanceTick - 1) / BalanceTick)
	}
	return ticks
}

// balanceAhead bounds how many ticks an entry may be newer than the clock, which was read before it.
const balanceAhead = 1024

// age is how many ticks ago an entry had a packet.
func (c balanceClock) age(t uint16) uint32 {
	age := (c.now - uint32(t>>2)) & balanceTicks
	if age > balanceTicks-balanceAhead {
		return 0
	}
	return age
}

func (c balanceClock) expired(t uint16) bool { return c.age(t) >= uint32(c.idle[t&3]) }

// worth orders entries by what is lost with them: 0 for one that has expired, then those that have had one packet,
// then others; among these the one is worth more that had a packet later.
func (c balanceClock) worth(t uint16) uint32 {
	if c.expired(t) {
		return 0
	}
	worth := uint32(balanceTicks) + 1 - c.age(t)
	if t&3 != uint16(bpfobj.PipelineLbFlowStateLB_FLOW_NEW) {
		worth += balanceTicks + 1
	}
	return worth
}
