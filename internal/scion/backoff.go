// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"container/list"
	"net/netip"
	"time"
)

const (
	// backOffFirst and backOffLast bound how long a host that has not answered is not asked for again. The slow path
	// still gets its packets, as far as their limit goes.
	backOffFirst = time.Second
	backOffLast  = 32 * time.Second
	// maxBackedOff bounds the memory for them; the oldest is forgotten.
	maxBackedOff = 4096
)

// backOff remembers hosts that have not answered. The pause doubles with each time in a row.
type backOff struct {
	hosts map[netip.Addr]*list.Element
	// order holds *pause, the oldest first.
	order *list.List
}

type pause struct {
	addr   netip.Addr
	length time.Duration
	until  time.Time
}

func newBackOff() backOff {
	return backOff{hosts: map[netip.Addr]*list.Element{}, order: list.New()}
}

// over tells whether a host may be asked for.
func (b *backOff) over(addr netip.Addr, now time.Time) bool {
	e := b.hosts[addr]
	return e == nil || !now.Before(e.Value.(*pause).until)
}

// add begins a pause.
func (b *backOff) add(addr netip.Addr, now time.Time) {
	length := backOffFirst
	if e := b.hosts[addr]; e != nil {
		length = min(2*e.Value.(*pause).length, backOffLast)
		b.forget(addr)
	}
	if b.order.Len() >= maxBackedOff {
		b.forget(b.order.Front().Value.(*pause).addr)
	}
	b.hosts[addr] = b.order.PushBack(&pause{addr: addr, length: length, until: now.Add(length)})
}

// forget is for a host that has answered.
func (b *backOff) forget(addr netip.Addr) {
	if e := b.hosts[addr]; e != nil {
		b.order.Remove(e)
		delete(b.hosts, addr)
	}
}

// expire forgets pauses that ended so long ago that the next one begins anew.
func (b *backOff) expire(now time.Time) {
	for e := b.order.Front(); e != nil; {
		p := e.Value.(*pause)
		e = e.Next()
		if now.Sub(p.until) > backOffLast {
			b.forget(p.addr)
		}
	}
}
