// SPDX-License-Identifier: Apache-2.0

package route

import (
	"maps"
	"testing"

	"culvert/internal/route/routeplane"
)

func (p *fakePlane) Neighbors() (map[routeplane.Neighbor]uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.neighbors), nil
}

func (p *fakePlane) Devs() (map[int]routeplane.Dev, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.devs), nil
}

// TestRunAgain ends a Run, and starts another one on the same plane. What has gone meanwhile is not left behind, least of all the
// number of a neighbor, which is another one's now.
func TestRunAgain(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	b.ip(`route add 10.1.0.0/16 via 10.9.0.2`)
	b.plane.attached = append(b.plane.attached, "cv2")
	b.start(Options{})
	index, gone := b.index("cv0"), b.index("cv2")
	if _, _, ok := b.plane.neighbor(index, "10.9.0.7"); !ok {
		t.Fatal("no neighbor")
	}
	if _, ok := b.plane.dev(gone); !ok {
		t.Fatal("no device")
	}
	b.stop()
	b.plane.attached = b.plane.attached[:2]
	b.ip("neigh del 10.9.0.7 dev cv0\nlink del cv2\naddr del 10.9.1.1/24 dev cv1")
	b.start(Options{})
	if number, hop, ok := b.plane.neighbor(index, "10.9.0.7"); ok {
		t.Errorf("a neighbor that has gone has next hop %d: %+v", number, hop)
	}
	if dev, ok := b.plane.dev(gone); ok {
		t.Errorf("a device that has gone: %+v", dev)
	}
	if _, hop, ok := b.plane.neighbor(index, "10.9.0.8"); !ok || hop.DstMAC != [6]byte(macOf(addrs("10.9.0.8")[0])) {
		t.Errorf("neighbor 10.9.0.8: %+v, %v", hop, ok)
	}
	b.compare(addrs("10.1.1.1", "10.9.0.7", "10.9.0.8", "10.9.1.1", "10.9.1.7", "10.9.2.2", "fd09::2", "fd09:2::2"), never)
}
