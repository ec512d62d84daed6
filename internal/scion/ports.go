// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"slices"
	"sync"
)

// ports are the devices that the fast path runs on.
type ports struct {
	mu      sync.Mutex
	indexes []int
}

// attached tells whether the fast path runs on a device. Others may not be able to send what is
// redirected to them, and the loss would show nowhere.
func (p *ports) attached(ifIndex int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.indexes, ifIndex)
}

// add takes in devices, and tells whether one of them is new.
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

// followPorts passes on what was found behind a device that was made again, once the fast path runs on that device: when it
// was found it did not.
func (f *fastPath) followPorts(hosts *hostTable) {
	if !f.ports.add(f.plane.AttachedIndexes()...) {
		return
	}
	f.linkMu.Lock()
	for link := range f.found {
		f.passLink(link)
	}
	f.linkMu.Unlock()
	hosts.again()
}

// again passes on what was found of hosts that could not be used then.
func (t *hostTable) again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.hosts {
		if h.place == nil && h.last.Resolved() {
			t.pass(h)
		}
	}
}
