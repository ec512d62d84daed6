// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"maps"
	"net/netip"

	"culvert/internal/lb/lbplane"
)

// generations is the number of generations of a backend number, from 1 on.
const generations = 1<<12 - 1

// backendKey identifies a backend of a VIP.
type backendKey struct {
	vip  Service
	addr netip.Addr
}

// number gives VIPs their numbers and backends their IDs. Those that are in old keep theirs. The others get numbers that old
// does not use, as long as there are any: a packet could find a reused number before its new ring is written.
func (s *State) number(old State, o lbplane.Options) error {
	vips, ids := make(map[Service]uint32), make(map[backendKey]lbplane.BackendID)
	freeVIPs, freeBackends := newNumbers(o.VIPs), newNumbers(o.Backends)
	for _, v := range old.VIPs {
		vips[v.Service] = v.Number
		freeVIPs.take(v.Number)
		for _, b := range v.Backends {
			ids[backendKey{v.Service, b.Addr}] = b.ID
			freeBackends.take(b.ID.Number())
		}
	}
	s.Generations = maps.Clone(old.Generations)
	if s.Generations == nil {
		s.Generations = make(map[uint32]uint32)
	}
	for n := range s.VIPs {
		v := &s.VIPs[n]
		if number, ok := vips[v.Service]; ok && int(number) < o.VIPs {
			v.Number = number
			freeVIPs.keep(number)
		}
		for m := range v.Backends {
			if backend, ok := ids[backendKey{v.Service, v.Backends[m].Addr}]; ok && int(backend.Number()) < o.Backends {
				v.Backends[m].ID = backend
				freeBackends.keep(backend.Number())
			} else {
				v.Backends[m].ID = 0
			}
		}
	}
	for n := range s.VIPs {
		v := &s.VIPs[n]
		if number, ok := vips[v.Service]; !ok || int(number) >= o.VIPs {
			number, ok := freeVIPs.next()
			if !ok {
				return fmt.Errorf("no number is left for VIP %s", v.Service)
			}
			v.Number = number
		}
		for m := range v.Backends {
			b := &v.Backends[m]
			if b.ID != 0 {
				continue
			}
			number, ok := freeBackends.next()
			if !ok {
				return fmt.Errorf("no number is left for backend %s of VIP %s", b.Addr, v.Service)
			}
			s.Generations[number] = s.Generations[number]%generations + 1
			b.ID = lbplane.NewBackendID(number, s.Generations[number])
		}
	}
	return nil
}

// numbers allocates numbers, the lowest first. Numbers that were used before come last.
type numbers struct {
	used, kept []bool
	at         int
	late       bool // only numbers that were used and are not kept are left
}

func newNumbers(n int) *numbers { return &numbers{used: make([]bool, n), kept: make([]bool, n)} }

func (f *numbers) take(n uint32) {
	if int(n) < len(f.used) {
		f.used[n] = true
	}
}

func (f *numbers) keep(n uint32) { f.kept[n] = true }

func (f *numbers) next() (uint32, bool) {
	for {
		for ; f.at < len(f.used); f.at++ {
			if n := f.at; !f.kept[n] && (f.late || !f.used[n]) {
				f.kept[n] = true
				return uint32(n), true
			}
		}
		if f.late {
			return 0, false
		}
		f.late, f.at = true, 0
	}
}
