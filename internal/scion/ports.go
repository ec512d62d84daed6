// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"slices"
	"sync"
)

// ports are the devices that the fast path is attached to.
type ports struct {
	mu      sync.Mutex
	indexes []int
}

// attached tells whether the fast path is attached to a device. Another device may be unable to send frames that are
// redirected to it, and no counter would show the loss.
func (p *ports) attached(ifIndex int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.indexes, ifIndex)
}

// add adds devices and tells whether one of them is new.
func (p *ports) add(indexes ...int) (grown bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, index := range indexes {
		if !slices.Contains(p.indexes, index) {
			p.indexes, grown = append(p.indexes, index), true
		}
	}
	return grown
}

// followPorts looks up the devices that the fast path is attached to. If there is a new one, such as a device that was
// deleted and made again, it writes the next hops to the fast path that were found before and could not be used.
func (f *fastPath) followPorts(hosts *hostTable) {
	if !f.ports.add(f.plane.AttachedIndexes()...) {
		return
	}
	f.linkMu.Lock()
	for link := range f.found {
		f.passLink(link)
	}
	f.linkMu.Unlock()
	hosts.rewrite()
}

// rewrite writes the next hops of all hosts to the fast path again.
func (t *hostTable) rewrite() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.hosts {
		if h.waiting == nil && h.last.Resolved() {
			t.pass(h)
		}
	}
}
