// SPDX-License-Identifier: Apache-2.0

// Package lbview shows the load balancer of a running data plane: its VIPs and backends, its flows, and which backend
// a flow gets and why.
package lbview

import (
	"errors"
	"slices"

	"culvert/internal/datapath"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/show/planes"
)

// kind describes the data planes that these commands accept.
var kind = planes.Kind{
	Name: "load balancer", Plural: "load balancers",
	Is:   func(i *datapath.Instance) bool { return lbplane.OptionsOf(i) != nil },
	None: "start one with 'culvert run -c FILE' or 'culvert attach -c FILE IFACE...', where FILE has an [lb] table",
}

// Open opens the data plane of that name in this network namespace, "" for the only one with a load balancer. Its load balancer
// must be on.
func Open(name string) (*datapath.Instance, error) { return planes.Open(name, kind) }

// view is a snapshot of the load balancer of a data plane.
type view struct {
	inst  *datapath.Instance
	plane *lbplane.Plane
	state lb.State
}

func newView(inst *datapath.Instance) (*view, error) {
	plane, err := lbplane.View(inst)
	if err != nil {
		return nil, err
	}
	state, err := lb.Load(plane)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(state.VIPs, func(a, b lb.VIP) int { return a.Service.Compare(b.Service) })
	return &view{inst: inst, plane: plane, state: state}, nil
}

// find returns the VIP of a service. If that is a VIP of all ports, find returns the port of the service too.
func (v *view) find(s lb.Service) (vip *lb.VIP, port uint16, err error) {
	for _, want := range []lb.Service{s, {Addr: s.Addr, Protocol: s.Protocol}} {
		for n := range v.state.VIPs {
			if v.state.VIPs[n].Service == want {
				if want != s {
					port = s.Port
				}
				return &v.state.VIPs[n], port, nil
			}
		}
	}
	return nil, 0, lb.NoVIPError(v.state.VIPs, s, " on "+v.inst.Name())
}

// Named reads the name of one of the VIPs of a load balancer, "" for the only one here. Without a protocol it is an error that
// names those that may be meant.
func Named(on, text string) (lb.Service, error) {
	s, err := lb.ParseService(text)
	var lacks *lb.NoProtocolError
	if errors.As(err, &lacks) {
		_ = with(on, func(v *view) error { // if there is none, the error is the same as for a new VIP
			err = lacks.Among(v.state.VIPs)
			return nil
		})
	}
	return s, err
}

// with calls do with an open load balancer.
func with(name string, do func(*view) error) error {
	inst, err := Open(name)
	if err != nil {
		return err
	}
	defer inst.Close()
	v, err := newView(inst)
	if err != nil {
		return err
	}
	return do(v)
}
