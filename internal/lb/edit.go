// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"culvert/internal/datapath"
	"culvert/internal/lb/lbplane"
)

// Load returns what the load balancer of an instance does.
func Load(p *lbplane.Plane) (State, error) {
	var s State
	b, err := p.State()
	if err != nil || b == nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("reading the load balancer's state of %s: %w: detach it, and attach it again", p.Name(), err)
	}
	return s, nil
}

// keeper keeps a state.
type keeper interface {
	Name() string
	SetState([]byte) error
}

func (s *State) keep(p keeper) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("keeping the load balancer's state of %s: %w", p.Name(), err)
	}
	return p.SetState(b)
}

func (s *State) clone() State {
	c := *s
	c.VIPs = slices.Clone(s.VIPs)
	for n, v := range c.VIPs {
		c.VIPs[n].Backends = slices.Clone(v.Backends)
		c.VIPs[n].VLANs = slices.Clone(v.VLANs)
		if v.Check != nil {
			check := *v.Check
			c.VIPs[n].Check = &check
		}
	}
	c.Generations = maps.Clone(s.Generations)
	return c
}

// Edit has the load balancer of an instance changed, by nobody else meanwhile. What change leaves is refused with an *Error
// if it makes no sense; then nothing has changed. Numbers and ids are not for change to set.
func Edit(inst *datapath.Instance, change func(*State) error) error {
	return EditThen(inst, change, nothing)
}

func nothing() error { return nil }

// EditThen is Edit, of which nothing is left if then fails, which is called when it is in force: backends keep their numbers
// and next hops, and so their flows.
func EditThen(inst *datapath.Instance, change func(*State) error, then func() error) error {
	return lbplane.Edit(inst, func(p *lbplane.Plane) error { return edit(p, change, then) })
}

func edit(p *lbplane.Plane, change func(*State) error, then func() error) error {
	old, before, l, err := read(p)
	if err != nil {
		return err
	}
	now := old.clone()
	if err := change(&now); err != nil {
		return err
	}
	if err := now.Validate(p.Options()); err != nil {
		return err
	}
	if err := now.number(old, p.Options()); err != nil {
		return err
	}
	return finish(p, old, now, before, l, then)
}

// read returns the state, what the programs know, and what comes and goes as it stands in their maps.
func read(p *lbplane.Plane) (s State, i image, l live, err error) {
	if s, err = Load(p); err != nil {
		return s, i, l, err
	}
	if l, err = readLive(p, &s); err != nil {
		return s, i, l, err
	}
	if !s.Unfinished {
		return s, s.image(l), l, nil
	}
	// Somebody has died while writing: everything is written again.
	i, err = unknown(p)
	return s, i, l, err
}

// unknown is an image of what may be there, whatever it is.
func unknown(p *lbplane.Plane) (image, error) {
	i := image{
		rings:    make(map[uint32][]place),
		backends: make(map[uint32]lbplane.Backend),
		ids:      make(map[uint32]map[string]lbplane.BackendID),
	}
	var err error
	if i.vips, err = p.VIPs(); err != nil {
		return i, err
	}
	if i.vlans, err = p.NamedVLANs(); err != nil {
		return i, err
	}
	for k := range i.vips {
		i.vips[k] = lbplane.VIP{Number: ^uint32(0)}
	}
	for n := range uint32(p.Options().VIPs) {
		i.rings[n] = nil
		if i.ids[n], err = p.ServerIDs(n); err != nil {
			return i, err
		}
		for id := range i.ids[n] {
			i.ids[n][id] = 0
		}
	}
	for n := range uint32(p.Options().Backends) {
		m, err := p.Backend(n)
		if err != nil {
			return i, err
		}
		if m.Used {
			i.backends[n] = lbplane.Backend{ID: m.ID}
		}
	}
	return i, nil
}

func readLive(p *lbplane.Plane, s *State) (live, error) {
	l := live{ways: make(map[netip.Addr]way), down: make(map[lbplane.BackendID]bool)}
	for _, v := range s.VIPs {
		for _, b := range v.Backends {
			m, err := p.Backend(b.ID.Number())
			if err != nil {
				return l, err
			}
			if !m.Used || m.ID != b.ID {
				continue
			}
			l.down[b.ID] = m.Down
			w := way{hop: m.Hop}
			if m.Source.IsSingleIP() {
				w.source = m.Source.Addr()
			}
			if known, ok := l.ways[b.Addr]; ok && !w.source.IsValid() { // of L2
				w.source = known.source
			}
			l.ways[b.Addr] = w
		}
	}
	return l, nil
}

// finish brings a state into force in place of another one, whose image the programs' maps hold, and then what comes next.
func finish(p *lbplane.Plane, old, now State, before image, l live, then func() error) error {
	if err := clearNew(p, old, now); err != nil {
		return err
	}
	now.Unfinished = true
	if err := now.keep(p); err != nil {
		return err
	}
	image, size := now.image(l), p.Options().RingSize
	err := write(p, size, before, image)
	if err == nil {
		err = then()
	}
	if err != nil {
		back := write(p, size, image, old.image(l))
		if back == nil {
			// Flows may have gone to backends of now: no other one may have their IDs.
			old.Generations = now.Generations
			back = old.keep(p)
		}
		return errors.Join(err, back)
	}
	now.Unfinished = false
	return now.keep(p)
}

// follow brings what has come and gone into force for a state that stays. What rings and VIPs are cannot be read from
// backends, which are written first: so a process that dies over them, or fails, has them written again.
func follow(p interface {
	plane
	keeper
}, size int, s State, before image, l live) error {
	now := s.image(l)
	whole := !maps.EqualFunc(before.rings, now.rings, slices.Equal) || !maps.Equal(before.vips, now.vips)
	if whole && !s.Unfinished {
		s.Unfinished = true
		if err := s.keep(p); err != nil {
			return err
		}
	}
	if err := write(p, size, before, now); err != nil || !s.Unfinished {
		return err
	}
	s.Unfinished = false
	return s.keep(p)
}

// clearNew clears what is counted by numbers that begin a new life.
func clearNew(p *lbplane.Plane, old, now State) error {
	had := make(map[lbplane.BackendID]bool)
	vips := make(map[Service]uint32)
	for _, v := range old.VIPs {
		vips[v.Service] = v.Number
		for _, b := range v.Backends {
			had[b.ID] = true
		}
	}
	for _, v := range now.VIPs {
		if number, ok := vips[v.Service]; !ok || number != v.Number {
			if err := p.ClearEvents(v.Number); err != nil {
				return err
			}
		}
		for _, b := range v.Backends {
			if had[b.ID] {
				continue
			}
			if err := p.ClearTraffic(b.ID.Number()); err != nil {
				return err
			}
			if err := p.SetHealth(lbplane.Health{Backend: b.ID}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Fill is for Attach: it writes what the configuration file says into maps that no program uses yet. Others are left
// alone: Edit changes them once the programs have been exchanged.
func Fill(file State) func(*lbplane.Plane) error {
	return func(p *lbplane.Plane) error {
		old, before, l, err := read(p)
		if err != nil {
			return err
		}
		if missing, err := ringMissing(p, before); err != nil || !missing && len(old.VIPs) > 0 {
			return err
		}
		now, err := Merge(old, file)
		if err != nil {
			return err
		}
		if err := now.Validate(p.Options()); err != nil {
			return err
		}
		if err := now.number(old, p.Options()); err != nil {
			return err
		}
		before.rings = nil
		return finish(p, old, now, before, l, nothing)
	}
}

// ringMissing tells whether a VIP has no ring: they do not stay when their size changes.
func ringMissing(p *lbplane.Plane, i image) (bool, error) {
	for n, places := range i.rings {
		if len(places) == 0 {
			continue
		}
		if ring, err := p.Ring(n); err != nil || ring == nil {
			return true, err
		}
	}
	return false, nil
}
