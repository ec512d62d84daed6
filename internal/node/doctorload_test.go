// SPDX-License-Identifier: Apache-2.0

package node

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"culvert/internal/datapath"
	"culvert/internal/host/netdev"
	"culvert/internal/stats"
	"culvert/internal/testbed"
)

// loadPlane is a data plane without interfaces.
type loadPlane struct {
	cpus     []stats.CPUPackets
	enqueued []uint64
	spread   map[string]bool
	generic  bool
	workers  []int
	bonds    map[string]*netdev.Bond
}

func (p *loadPlane) Ports() ([]stats.Port, error)   { return []stats.Port{{CPUs: p.cpus}}, nil }
func (p *loadPlane) Name() string                   { return "r" }
func (p *loadPlane) Workers() datapath.Workers      { return datapath.Workers{CPUs: p.workers} }
func (p *loadPlane) Unattended() bool               { return true }
func (p *loadPlane) Enqueued() ([]uint64, error)    { return p.enqueued, nil }
func (p *loadPlane) Spread() map[string]bool        { return p.spread }
func (p *loadPlane) Generic() bool                  { return p.generic }
func (p *loadPlane) Bonds() map[string]*netdev.Bond { return p.bonds }
func (p *loadPlane) AttachedNow() []string          { return slices.Collect(maps.Keys(p.spread)) }

// TestLoad reads counters that change while loadOf waits.
func TestLoad(t *testing.T) {
	p := &loadPlane{workers: []int{0, 1}, cpus: []stats.CPUPackets{{CPU: 0, Packets: 20_000}}, enqueued: []uint64{5, 0}}
	l := loadOf(p, func() {
		p.cpus = []stats.CPUPackets{{CPU: 0, Packets: 20_100}, {CPU: 1, Packets: 7}}
		p.enqueued = []uint64{12, 0}
	})
	if !reflect.DeepEqual(l.CPUs, map[int]uint64{0: 100, 1: 7}) || !reflect.DeepEqual(l.Enqueued, map[int]uint64{0: 7}) || l.Router != "r" || !l.Unattended || len(l.Workers) != 2 {
		t.Errorf("%+v", l)
	}
	p.spread, p.generic = map[string]bool{"e0": false}, true
	if got := loadOf(p, func() {}).Interfaces; len(got) != 1 || !strings.HasPrefix(got[0].Stays, "in generic mode") || !strings.HasPrefix(got[0].Mend, "culvert attach") {
		t.Errorf("%+v", got)
	}
	// Without workers there is what workers would do.
	p.workers, p.spread = nil, map[string]bool{"e0": true}
	p.generic = false
	if got := loadOf(p, func() {}).Interfaces; len(got) != 1 || got[0].Stays != "" {
		t.Errorf("without workers: %+v", got)
	}
	p.workers, p.spread = []int{0, 1}, nil
	p.cpus = []stats.CPUPackets{{CPU: 0, Packets: 9999}}
	if l := loadOf(p, func() { t.Error("it waited for a data plane with few packets") }); len(l.CPUs) != 0 || len(l.Workers) != 2 {
		t.Errorf("%+v", l)
	}
}

// TestLoadOfBond has the queues of the members of a bond, which has none itself.
func TestLoadOfBond(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "m0", "m1")
	p := &loadPlane{spread: map[string]bool{"bond0": true}, bonds: map[string]*netdev.Bond{
		"bond0": {Name: "bond0", Members: []netdev.BondMember{{Name: "m0"}}},
	}}
	got := loadOf(p, func() {}).Interfaces
	if len(got) != 2 || got[0].Interface != "bond0" || got[0].Queues != nil || got[1].Interface != "m0" || got[1].Bond != "bond0" || got[1].Queues == nil {
		t.Errorf("%+v", got)
	}
}
