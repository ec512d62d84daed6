// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// VIPSpec is a change of a VIP by hand. Zero fields stay as they are, or get the default in a new VIP.
type VIPSpec struct {
	Hash, OnFailure, Encap string
	ServerID, IDConfig     *uint8
	VLANs                  *[]uint16
	// Check changes the fields that are not 0. Its type NoCheck removes the check.
	Check Check
}

// NoCheck is a type of Check for VIPs without one.
const NoCheck = "none"

// Validate returns an error for what is wrong for any VIP.
func (s VIPSpec) Validate() error {
	v := VIP{Hash: HashFlow, OnFailure: FailKeep, Encap: EncapIPIP}
	s.applyStrings(&v)
	if _, err := v.checkWords(); err != nil {
		return err
	}
	if s.Check.Type == NoCheck && s.Check != (Check{Type: NoCheck}) {
		return errors.New("check none beside how to check")
	}
	return nil
}

func (s VIPSpec) applyStrings(v *VIP) {
	for _, w := range []struct {
		from string
		to   *string
	}{{s.Hash, &v.Hash}, {s.OnFailure, &v.OnFailure}, {s.Encap, &v.Encap}} {
		if w.from != "" {
			*w.to = w.from
		}
	}
}

func (s VIPSpec) apply(v *VIP) error {
	s.applyStrings(v)
	if s.ServerID != nil {
		v.ServerID = *s.ServerID
	}
	if s.IDConfig != nil {
		v.IDConfig = *s.IDConfig
	}
	if s.VLANs != nil {
		v.VLANs = *s.VLANs
	}
	switch {
	case s.Check == Check{}:
		return nil
	case s.Check.Type == NoCheck:
		v.Check = nil
		return nil
	case s.Check.Type == "" && v.Check == nil:
		return &Error{VIP: v.Service, Part: PartCheck, Err: errors.New("it is not checked: say what by, as --check tcp")}
	}
	check := s.Check
	if v.Check != nil && (check.Type == "" || check.Type == v.Check.Type) {
		check = overlay(*v.Check, check)
	}
	check = check.WithDefaults()
	v.Check = &check
	return nil
}

// overlay returns a check with the fields of change that are not 0.
func overlay(check, change Check) Check {
	setIfGiven(&check.Port, change.Port)
	setIfGiven(&check.Interval, change.Interval)
	setIfGiven(&check.Timeout, change.Timeout)
	setIfGiven(&check.Rise, change.Rise)
	setIfGiven(&check.Fall, change.Fall)
	setIfGiven(&check.Path, change.Path)
	setIfGiven(&check.Host, change.Host)
	setIfGiven(&check.Status, change.Status)
	setIfGiven(&check.Send, change.Send)
	setIfGiven(&check.Expect, change.Expect)
	return check
}

func setIfGiven[T comparable](to *T, from T) {
	var zero T
	if from != zero {
		*to = from
	}
}

// BackendSpec is a change of a backend by hand. Zero fields stay as they are, or get the default in a new backend.
type BackendSpec struct {
	Weight   *uint32
	Encap    string
	GUEPort  *uint16
	ServerID *string
}

// Validate returns an error for what is wrong for any backend.
func (s BackendSpec) Validate() error {
	if s.Encap == "" {
		return nil
	}
	return oneOf(PartEncap, s.Encap, EncapIPIP, EncapGUE, EncapL2)
}

func (s BackendSpec) apply(b *Backend) {
	if s.Weight != nil {
		b.Weight = *s.Weight
	}
	if s.Encap != "" && s.Encap != b.Encap {
		b.Encap, b.GUEPort = s.Encap, 0
	}
	if b.Encap == EncapGUE && b.GUEPort == 0 {
		b.GUEPort = GUEPort
	}
	if s.GUEPort != nil {
		b.GUEPort = *s.GUEPort
	}
	if s.ServerID != nil {
		b.ServerID = *s.ServerID
	}
}

func (s *State) mustFind(k Service) (*VIP, error) {
	if v := s.find(k); v != nil {
		return v, nil
	}
	return nil, NoVIPError(s.VIPs, k, "")
}

func (s *State) mustFindBackend(k Service, a netip.Addr) (*Backend, error) {
	v, err := s.mustFind(k)
	if err != nil {
		return nil, err
	}
	if b := v.find(a); b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("VIP %s has no backend %s: see 'culvert lb show'", k, a)
}

// AddVIP adds a VIP without backends.
func (s *State) AddVIP(k Service, spec VIPSpec) error {
	if s.find(k) != nil {
		return fmt.Errorf("VIP %s is there already: change it with 'culvert lb vip set'", k)
	}
	v := VIP{Service: k, Hash: HashFlow, OnFailure: FailKeep, Encap: EncapIPIP}
	if err := spec.apply(&v); err != nil {
		return err
	}
	s.VIPs = append(s.VIPs, v)
	return nil
}

// SetVIP changes a VIP. It returns whether the VIP comes from the configuration file.
func (s *State) SetVIP(k Service, spec VIPSpec) (file bool, err error) {
	v, err := s.mustFind(k)
	if err != nil {
		return false, err
	}
	if err := spec.apply(v); err != nil {
		return v.File, err
	}
	v.join(v.Backends) // those of sources have its encapsulation
	return v.File, nil
}

// DeleteVIP deletes a VIP with its backends. It returns whether the VIP comes from the configuration file.
func (s *State) DeleteVIP(k Service) (file bool, err error) {
	v, err := s.mustFind(k)
	if err != nil {
		return false, err
	}
	file = v.File
	s.VIPs = slices.DeleteFunc(s.VIPs, func(v VIP) bool { return v.Service == k })
	return file, nil
}

// AddBackend adds a backend to a VIP.
func (s *State) AddBackend(k Service, a netip.Addr, spec BackendSpec) error {
	v, err := s.mustFind(k)
	if err != nil {
		return err
	}
	if v.find(a) != nil {
		return fmt.Errorf("VIP %s has backend %s already: change it with 'culvert lb backend set'", k, a)
	}
	b := Backend{Addr: a, Encap: v.Encap, Weight: 1}
	spec.apply(&b)
	v.Backends = append(v.Backends, b)
	return nil
}

// SetBackend changes a backend. It returns whether the backend comes from the configuration file.
func (s *State) SetBackend(k Service, a netip.Addr, spec BackendSpec) (file bool, err error) {
	b, err := s.mustFindBackend(k, a)
	if err != nil {
		return false, err
	}
	if b.Offered != "" {
		return false, offeredError(k, b)
	}
	spec.apply(b)
	return b.File, nil
}

// DeleteBackend deletes a backend. It returns whether the backend comes from the configuration file.
func (s *State) DeleteBackend(k Service, a netip.Addr) (file bool, err error) {
	b, err := s.mustFindBackend(k, a)
	if err != nil {
		return false, err
	}
	if b.Offered != "" {
		return false, offeredError(k, b)
	}
	file = b.File
	v, was := s.find(k), slices.Clone(s.find(k).Backends)
	v.Backends = slices.DeleteFunc(v.Backends, func(b Backend) bool { return b.Addr == a })
	v.join(was) // a source may name it too
	return file, nil
}

// Drain sets or clears the mark of a drained backend, which gets no new flows. With an invalid address it does so for the
// VIP, whose address is then not announced because of it. The configuration file cannot set the mark and does not change it.
func (s *State) Drain(k Service, a netip.Addr, drained bool) error {
	if !a.IsValid() {
		v, err := s.mustFind(k)
		if err == nil {
			v.Drained = drained
		}
		return err
	}
	b, err := s.mustFindBackend(k, a)
	if err == nil {
		b.Drained = drained
	}
	return err
}
