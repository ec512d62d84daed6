// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// VIPSpec is what is said of a VIP by hand; what is left out stays, or is the default.
type VIPSpec struct {
	Hash, OnFailure, Encap string
	ServerID, IDConfig     *uint8
	VLANs                  *[]uint16
	// Check has 0 for what is left out. Its type NoCheck ends checks.
	Check Check
}

// NoCheck stands in the place of a type of checks.
const NoCheck = "none"

// Validate refuses what is wrong whatever the VIP is.
func (s VIPSpec) Validate() error {
	v := VIP{Hash: HashFlow, OnFailure: FailKeep, Encap: EncapIPIP}
	s.words(&v)
	if _, err := v.checkWords(); err != nil {
		return err
	}
	if s.Check.Type == NoCheck && s.Check != (Check{Type: NoCheck}) {
		return errors.New("check none beside how to check")
	}
	return nil
}

func (s VIPSpec) words(v *VIP) {
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
	s.words(v)
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

// overlay puts what is said of a check over what was.
func overlay(was, said Check) Check {
	put(&was.Port, said.Port)
	put(&was.Interval, said.Interval)
	put(&was.Timeout, said.Timeout)
	put(&was.Rise, said.Rise)
	put(&was.Fall, said.Fall)
	put(&was.Path, said.Path)
	put(&was.Host, said.Host)
	put(&was.Status, said.Status)
	put(&was.Send, said.Send)
	put(&was.Expect, said.Expect)
	return was
}

func put[T comparable](to *T, from T) {
	var zero T
	if from != zero {
		*to = from
	}
}

// BackendSpec is what is said of a backend by hand; what is left out stays, or is the default.
type BackendSpec struct {
	Weight   *uint32
	Encap    string
	GUEPort  *uint16
	ServerID *string
}

// Validate refuses what is wrong whatever the backend is.
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

// AddVIP puts a VIP without backends into s.
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

// SetVIP changes a VIP. File says that it is the configuration file's.
func (s *State) SetVIP(k Service, spec VIPSpec) (file bool, err error) {
	v, err := s.mustFind(k)
	if err != nil {
		return false, err
	}
	return v.File, spec.apply(v)
}

// DeleteVIP takes a VIP with its backends out of s.
func (s *State) DeleteVIP(k Service) (file bool, err error) {
	v, err := s.mustFind(k)
	if err != nil {
		return false, err
	}
	file = v.File
	s.VIPs = slices.DeleteFunc(s.VIPs, func(v VIP) bool { return v.Service == k })
	return file, nil
}

// AddBackend gives a VIP another backend.
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

// SetBackend changes a backend.
func (s *State) SetBackend(k Service, a netip.Addr, spec BackendSpec) (file bool, err error) {
	b, err := s.mustFindBackend(k, a)
	if err != nil {
		return false, err
	}
	spec.apply(b)
	return b.File, nil
}

// DeleteBackend takes a backend from a VIP.
func (s *State) DeleteBackend(k Service, a netip.Addr) (file bool, err error) {
	b, err := s.mustFindBackend(k, a)
	if err != nil {
		return false, err
	}
	file = b.File
	v := s.find(k)
	v.Backends = slices.DeleteFunc(v.Backends, func(b Backend) bool { return b.Addr == a })
	return file, nil
}

// Drain keeps new flows from a backend, or with an invalid address lets a VIP be no reason to announce its address; or
// takes that back. The configuration file says nothing of it, and changes nothing.
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
