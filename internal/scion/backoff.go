// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"container/list"
	"net/netip"
	"time"
)

const (
	// backOffFirst and backOffLast are the shortest and the longest pause before a host that has not answered is resolved
	// again. Until then its packets take the slow path, at a limited rate.
	backOffFirst = time.Second
	backOffLast  = 32 * time.Second
	// maxBackedOff bounds the number of pauses. Beyond it the oldest is forgotten.
	maxBackedOff = 4096
)

// backOff remembers hosts that have not answered. Each failure in a row doubles the pause.
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

// over tells whether no pause of a host is running.
func (b *backOff) over(addr netip.Addr, now time.Time) bool {
	e := b.hosts[addr]
	return e == nil || !now.Before(e.Value.(*pause).until)
}

// add begins a pause for a host that has not answered.
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

// forget removes the pause of a host, because it has answered.
func (b *backOff) forget(addr netip.Addr) {
	if e := b.hosts[addr]; e != nil {
		b.order.Remove(e)
		delete(b.hosts, addr)
	}
}

// expire forgets pauses that ended more than backOffLast ago. The next pause of such a host is backOffFirst again.
func (b *backOff) expire(now time.Time) {
	for e := b.order.Front(); e != nil; {
		p := e.Value.(*pause)
		e = e.Next()
		if now.Sub(p.until) > backOffLast {
			b.forget(p.addr)
		}
	}
}
