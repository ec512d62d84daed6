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

// Load returns the state that is stored with a data plane, an empty one if there is none.
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

// stateStore has the methods of *lbplane.Plane that store a state.
type stateStore interface {
	Name() string
	SetState([]byte) error
}

func (s *State) store(p stateStore) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("writing the load balancer's state of %s: %w", p.Name(), err)
	}
	return p.SetState(b)
}

func (s *State) clone() State {
	c := *s
	c.VIPs = slices.Clone(s.VIPs)
	for n, v := range c.VIPs {
		c.VIPs[n].Backends = slices.Clone(v.Backends)
		c.VIPs[n].VLANs = slices.Clone(v.VLANs)
		c.VIPs[n].Offers = slices.Clone(v.Offers)
		if v.Check != nil {
			check := *v.Check
			c.VIPs[n].Check = &check
		}
	}
	c.Generations = maps.Clone(s.Generations)
	return c
}

// Edit changes the state of the load balancer of an instance under its lock. If the result of change is not valid Edit
// returns an *Error and changes nothing. Edit sets numbers and IDs itself.
func Edit(inst *datapath.Instance, change func(*State) error) error {
	return EditThen(inst, change, nothing)
}

func nothing() error { return nil }

// EditThen does the same as Edit and calls then once the new state is in force. If then fails the old state comes back, and
// backends keep their numbers and next hops, and so their flows.
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

// read returns the state, the contents of the programs' maps, and the live data in them.
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
	// A process has died while writing, so everything is written again.
	i, err = unknownImage(p)
	return s, i, l, err
}

// unknownImage returns an image with the keys of all maps and values that differ from any valid one, so that write replaces
// all of them.
func unknownImage(p *lbplane.Plane) (image, error) {
	i := image{
		rings:    make(map[uint32][]ringEntry),
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
		b, err := p.Backend(n)
		if err != nil {
			return i, err
		}
		if b.Used {
			i.backends[n] = lbplane.Backend{ID: b.ID}
		}
	}
	return i, nil
}

func readLive(p *lbplane.Plane, s *State) (live, error) {
	l := live{routes: make(map[netip.Addr]route), down: make(map[lbplane.BackendID]bool)}
	for _, v := range s.VIPs {
		for _, b := range v.Backends {
			written, err := p.Backend(b.ID.Number())
			if err != nil {
				return l, err
			}
			if !written.Used || written.ID != b.ID {
				continue
			}
			l.down[b.ID] = written.Down
			r := route{hop: written.Hop}
			if written.Source.IsSingleIP() {
				r.source = written.Source.Addr()
			}
			if known, ok := l.routes[b.Addr]; ok && !r.source.IsValid() { // a backend by L2 has no source
				r.source = known.source
			}
			l.routes[b.Addr] = r
		}
	}
	return l, nil
}

// finish replaces the state old, whose image before is in the programs' maps, by the state now, and calls then. If any of that
// fails old comes back.
func finish(p *lbplane.Plane, old, now State, before image, l live, then func() error) error {
	if err := clearNew(p, old, now); err != nil {
		return err
	}
	return replace(p, p.Options().RingSize, old, now, before, l, then)
}

// storing is what writes images and states to a data plane.
type storing interface {
	plane
	stateStore
}

// replace is finish for a data plane whose counters are as they have to be. size is that of a ring.
func replace(p storing, size int, old, now State, before image, l live, then func() error) error {
	now.Unfinished = true
	if err := now.store(p); err != nil {
		return err
	}
	image := now.image(l)
	err := write(p, size, before, image)
	if err == nil {
		now.Unfinished = false
		err = now.store(p)
	}
	if err == nil { // last, because what then has done stays
		err = then()
	}
	if err == nil {
		return nil
	}
	now.Unfinished = true
	back := errors.Join(now.store(p), write(p, size, image, old.image(l)))
	if back == nil {
		// Flows may have been assigned to backends of now, so their IDs must not be used again.
		old.Generations = now.Generations
		back = old.store(p)
	}
	return errors.Join(err, back)
}

// follow writes new live data of an unchanged state. Backends are written first, and read later to find out what is in the
// maps. They do not tell whether rings and VIPs have been written too. So the state is marked as unfinished if these change,
// and everything is written again if the process dies or fails in the middle.
func follow(p storing, size int, s State, before image, l live) error {
	now := s.image(l)
	changed := !maps.EqualFunc(before.rings, now.rings, slices.Equal) || !maps.Equal(before.vips, now.vips)
	if changed && !s.Unfinished {
		s.Unfinished = true
		if err := s.store(p); err != nil {
			return err
		}
	}
	if err := write(p, size, before, now); err != nil || !s.Unfinished {
		return err
	}
	s.Unfinished = false
	return s.store(p)
}

// clearNew clears the counters of numbers that are used again.
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

// Fill returns a function for lbplane.Options.Fill. It writes the state of the configuration file into maps that no program
// uses yet. It leaves adopted maps alone: Edit changes them once the program has been replaced.
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

// ringMissing returns whether a VIP lacks its ring. Rings are not adopted when their size changes.
func ringMissing(p *lbplane.Plane, i image) (bool, error) {
	for n, entries := range i.rings {
		if len(entries) == 0 {
			continue
		}
		if ring, err := p.Ring(n); err != nil || ring == nil {
			return true, err
		}
	}
	return false, nil
}
