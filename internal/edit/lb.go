// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"culvert/internal/datapath"
	"culvert/internal/lb"
	"culvert/internal/lb/lbstage"
	"culvert/internal/lb/lbview"
	"culvert/internal/show/usage"
)

// onLB opens the data plane of a change of the load balancer.
type onLB struct{}

func (onLB) open(on string) (*datapath.Instance, error) { return lbview.Open(on) }

// editLB changes the load balancer and writes what to r. change returns file = true if the configuration file has other values.
func editLB(ctx context.Context, inst *datapath.Instance, r *Result, what string, change func(*lb.State) (file bool, err error)) error {
	var file bool
	err := carryOut(inst, lbstage.Edit{Change: func(s *lb.State) (err error) {
		file, err = change(s)
		return err
	}})
	if err != nil {
		return err
	}
	fmt.Fprintln(r, what)
	if file {
		fmt.Fprintln(r, "the configuration file says otherwise: what it says comes back when it is read again")
	}
	if inst.Served() {
		return nil // the process resolves the next hops of new backends
	}
	return lbstage.Settle(ctx, inst, r)
}

// named reads the name of a VIP that is there.
func named(inst *datapath.Instance, vip string) (lb.Service, error) {
	k, err := lbview.Named(inst.Name(), vip)
	if err != nil {
		return k, usage.Error(err)
	}
	return k, nil
}

// checkName refuses what is no name of any VIP.
func checkName(vip string) error {
	_, err := lb.ParseService(vip)
	var lacks *lb.NoProtocolError
	if err == nil || errors.As(err, &lacks) { // what it lacks, the VIPs that are there say
		return nil
	}
	return usage.Error(err)
}

// VIPSettings describe a VIP. What is left out stays, or has its default if the VIP is new.
type VIPSettings struct {
	// Hash is flow, source or source-port: by what backends are assigned.
	Hash string `json:"hash,omitempty"`
	// OnFailure is keep or move: what flows of a backend that fails do.
	OnFailure string `json:"on_failure,omitempty"`
	// Encapsulation is ipip, gue or l2, for new backends.
	Encapsulation string `json:"encapsulation,omitempty"`
	// QUICServerID is how many bytes server IDs in QUIC connection IDs have, 0 for none. QUICConfig is their config rotation.
	QUICServerID *uint8 `json:"quic_server_id,omitempty"`
	QUICConfig   *uint8 `json:"quic_config,omitempty"`
	// VLANs are those on which it is served beside those for which the host has a device. [] is none.
	VLANs *[]uint16 `json:"vlans,omitempty"`
	// Check is how backends are checked.
	Check *CheckSettings `json:"check,omitempty"`
}

// CheckSettings say how backends are checked. What is left out stays, or has its default if there was no check.
type CheckSettings struct {
	// Type is tcp, http, https or udp; none for no check.
	Type string `json:"type,omitempty"`
	// Port is that of the VIP if it is left out.
	Port uint16 `json:"port,omitempty"`
	// Interval is the time within which a failure is found, Timeout how long an answer may take: 500ms, 2s.
	Interval Time `json:"interval,omitempty"`
	Timeout  Time `json:"timeout,omitempty"`
	// Rise and Fall are after how many answers or failures in a row a backend is up or down.
	Rise int `json:"rise,omitempty"`
	Fall int `json:"fall,omitempty"`
	// Path, Host and Status are for HTTP. Status is as 200 or 200-399.
	Path   string `json:"path,omitempty"`
	Host   string `json:"host,omitempty"`
	Status string `json:"status,omitempty"`
	// Send and Expect are for TCP and UDP: a text to send, and one that the answer has to begin with.
	Send   string `json:"send,omitempty"`
	Expect string `json:"expect,omitempty"`
}

// NewVIP returns the settings of a specification.
func NewVIP(s lb.VIPSpec) VIPSettings {
	v := VIPSettings{Hash: s.Hash, OnFailure: s.OnFailure, Encapsulation: s.Encap, QUICServerID: s.ServerID, QUICConfig: s.IDConfig}
	if s.VLANs != nil {
		ids := append([]uint16{}, *s.VLANs...)
		v.VLANs = &ids
	}
	if c := s.Check; c != (lb.Check{}) {
		v.Check = &CheckSettings{
			Type: c.Type, Port: c.Port, Interval: Time(c.Interval), Timeout: Time(c.Timeout), Rise: c.Rise, Fall: c.Fall,
			Path: c.Path, Host: c.Host, Status: c.Status, Send: c.Send, Expect: c.Expect,
		}
	}
	return v
}

// check returns the specification of the settings of a VIP.
func (v *VIPSettings) check(vip string) (lb.VIPSpec, error) {
	s := lb.VIPSpec{Hash: v.Hash, OnFailure: v.OnFailure, Encap: v.Encapsulation, ServerID: v.QUICServerID, IDConfig: v.QUICConfig}
	if v.VLANs != nil {
		ids := slices.Clone(*v.VLANs)
		s.VLANs = &ids
		if len(ids) == 0 {
			ids = nil
		}
	}
	if c := v.Check; c != nil {
		s.Check = lb.Check{
			Type: c.Type, Port: c.Port, Interval: c.Interval.duration(), Timeout: c.Timeout.duration(), Rise: c.Rise, Fall: c.Fall,
			Path: c.Path, Host: c.Host, Status: c.Status, Send: c.Send, Expect: c.Expect,
		}
	}
	err := s.Validate()
	if err == nil && s.VLANs != nil {
		err = lb.CheckVLANs(*s.VLANs)
	}
	if err != nil {
		return s, usage.Error(fmt.Errorf("VIP %s: %w", vip, err))
	}
	return s, nil
}

// VIPAdd asks for a VIP without backends.
type VIPAdd struct {
	onLB
	// VIP is its name: 192.0.2.1:80/tcp.
	VIP string `json:"vip"`
	VIPSettings
}

// Check implements Request.
func (a *VIPAdd) Check() error {
	if _, err := a.check(a.VIP); err != nil {
		return err
	}
	if _, err := lb.ParseService(a.VIP); err != nil {
		return usage.Error(err)
	}
	return nil
}

func (a *VIPAdd) do(ctx context.Context, inst *datapath.Instance, r *Result) error {
	s, err := a.check(a.VIP)
	if err != nil {
		return err
	}
	k, err := lb.ParseService(a.VIP)
	if err != nil {
		return usage.Error(err)
	}
	return editLB(ctx, inst, r, fmt.Sprintf("VIP %s added", k), func(state *lb.State) (bool, error) { return false, state.AddVIP(k, s) })
}

// VIPSet asks for other settings of a VIP.
type VIPSet struct {
	onLB
	// VIP is its name: 192.0.2.1:80/tcp.
	VIP string `json:"vip"`
	VIPSettings
}

// Check implements Request.
func (c *VIPSet) Check() error {
	s, err := c.check(c.VIP)
	if err != nil {
		return err
	}
	if s == (lb.VIPSpec{}) {
		return usage.Error(fmt.Errorf("VIP %s: give a setting to change: see 'culvert lb vip set --help'", c.VIP))
	}
	return checkName(c.VIP)
}

func (c *VIPSet) do(ctx context.Context, inst *datapath.Instance, r *Result) error {
	s, err := c.check(c.VIP)
	if err != nil {
		return err
	}
	k, err := named(inst, c.VIP)
	if err != nil {
		return err
	}
	return editLB(ctx, inst, r, fmt.Sprintf("VIP %s changed", k), func(state *lb.State) (bool, error) { return state.SetVIP(k, s) })
}

// VIPDel asks for a VIP to be deleted, with its backends.
type VIPDel struct {
	onLB
	// VIP is its name.
	VIP string `json:"vip"`
}

// Check implements Request.
func (d *VIPDel) Check() error { return checkName(d.VIP) }

func (d *VIPDel) do(ctx context.Context, inst *datapath.Instance, r *Result) error {
	k, err := named(inst, d.VIP)
	if err != nil {
		return err
	}
	return editLB(ctx, inst, r, fmt.Sprintf("VIP %s deleted", k), func(state *lb.State) (bool, error) { return state.DeleteVIP(k) })
}

// Drain asks for a backend to get no new flows, or without one for the VIP's address to be withdrawn.
type Drain struct {
	onLB
	// VIP is its name. Without one the backend is drained at all VIPs that have it.
	VIP string `json:"vip,omitempty"`
	// Backend is the address of the backend.
	Backend *string `json:"backend,omitempty"`
}

// Undrain asks for what Drain has done to be undone.
type Undrain struct{ Drain }

// Check implements Request.
func (d *Drain) Check() error {
	if d.Backend != nil {
		if _, err := lb.ParseBackend(*d.Backend); err != nil {
			return usage.Error(err)
		}
		if d.VIP == "" {
			return nil
		}
	}
	return checkName(d.VIP)
}

func (d *Drain) do(ctx context.Context, inst *datapath.Instance, r *Result) error {
	return d.drain(ctx, inst, r, true)
}

func (u *Undrain) do(ctx context.Context, inst *datapath.Instance, r *Result) error {
	return u.drain(ctx, inst, r, false)
}

func (d *Drain) drain(ctx context.Context, inst *datapath.Instance, r *Result, drained bool) (err error) {
	var a netip.Addr
	if d.Backend != nil {
		if a, err = lb.ParseBackend(*d.Backend); err != nil {
			return usage.Error(err)
		}
	}
	is := map[bool]string{true: " is drained", false: " is not drained any more"}[drained]
	if d.VIP == "" {
		return editLB(ctx, inst, r, fmt.Sprintf("backend %s%s", a, is), func(state *lb.State) (bool, error) { return false, drainAll(state, a, drained) })
	}
	k, err := named(inst, d.VIP)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("VIP %s", k)
	if a.IsValid() {
		what += fmt.Sprintf(": backend %s", a)
	}
	what += is
	return editLB(ctx, inst, r, what, func(state *lb.State) (bool, error) { return false, state.Drain(k, a, drained) })
}

// drainAll drains a backend at all VIPs that have it, or undoes that.
func drainAll(state *lb.State, a netip.Addr, drained bool) error {
	found := false
	for _, v := range state.VIPs {
		if !slices.ContainsFunc(v.Backends, func(b lb.Backend) bool { return b.Addr == a }) {
			continue
		}
		if err := state.Drain(v.Service, a, drained); err != nil {
			return err
		}
		found = true
	}
	if !found {
		return fmt.Errorf("no VIP has a backend %s: see 'culvert lb show'", a)
	}
	return nil
}
