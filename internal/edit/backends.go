// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"context"
	"fmt"
	"net/netip"

	"culvert/internal/datapath"
	"culvert/internal/host/hostaddr"
	"culvert/internal/lb"
	"culvert/internal/show/usage"
)

// BackendName names a backend of a VIP.
type BackendName struct {
	onLB
	// VIP is the name of the VIP: 192.0.2.1:80/tcp.
	VIP string `json:"vip"`
	// Backend is the address of the backend.
	Backend string `json:"backend"`
}

// Check refuses what is no name of any backend.
func (n *BackendName) Check() error {
	if _, err := lb.ParseBackend(n.Backend); err != nil {
		return usage.Error(err)
	}
	return checkName(n.VIP)
}

func (n *BackendName) named(inst *datapath.Instance) (k lb.Service, a netip.Addr, err error) {
	if a, err = lb.ParseBackend(n.Backend); err != nil {
		return k, a, usage.Error(err)
	}
	k, err = named(inst, n.VIP)
	return k, a, err
}

// BackendSettings describe a backend. What is left out stays, or has its default if the backend is new.
type BackendSettings struct {
	// Weight is its share of new flows, 0 to 65535.
	Weight *int64 `json:"weight,omitempty"`
	// Encapsulation is ipip, gue or l2.
	Encapsulation string `json:"encapsulation,omitempty"`
	// GUEPort is the UDP port of GUE.
	GUEPort *uint16 `json:"gue_port,omitempty"`
	// ServerID is its server ID in QUIC connection IDs, in hexadecimal digits.
	ServerID *string `json:"server_id,omitempty"`
}

func (b *BackendSettings) check(n *BackendName) (lb.BackendSpec, error) {
	s := lb.BackendSpec{Encap: b.Encapsulation, GUEPort: b.GUEPort, ServerID: b.ServerID}
	err := s.Validate()
	if b.Weight != nil {
		w, weightErr := lb.ParseWeight(*b.Weight)
		if s.Weight = &w; weightErr != nil {
			err = weightErr
		}
	}
	if err != nil {
		return s, usage.Error(fmt.Errorf("VIP %s: backend %s: %w", n.VIP, n.Backend, err))
	}
	return s, nil
}

// BackendAdd asks for another backend of a VIP.
type BackendAdd struct {
	BackendName
	BackendSettings
}

// Check implements Request.
func (q *BackendAdd) Check() error {
	if _, err := q.check(&q.BackendName); err != nil {
		return err
	}
	return q.BackendName.Check()
}

func (q *BackendAdd) do(ctx context.Context, inst *datapath.Instance, r *Result) error {
	s, err := q.check(&q.BackendName)
	if err != nil {
		return err
	}
	k, a, err := q.named(inst)
	if err != nil {
		return err
	}
	err = editLB(ctx, inst, r, fmt.Sprintf("VIP %s: backend %s added", k, a), func(state *lb.State) (bool, error) {
		return false, state.AddBackend(k, a, s)
	})
	if err != nil {
		return err
	}
	if elsewhere, err := hostaddr.Elsewhere([]netip.AddrPort{netip.AddrPortFrom(a, 0)}); err == nil && len(elsewhere) == 0 {
		fmt.Fprintf(r, "this host has the address %s: no packet gets to that backend as long as it has; see 'culvert lb backend del'\n", a)
	}
	return nil
}

// BackendSet asks for other settings of a backend.
type BackendSet struct {
	BackendName
	BackendSettings
}

// Check implements Request.
func (q *BackendSet) Check() error {
	s, err := q.check(&q.BackendName)
	if err != nil {
		return err
	}
	if s == (lb.BackendSpec{}) {
		return usage.Error(fmt.Errorf("VIP %s: backend %s: give a setting to change: see 'culvert lb backend set --help'", q.VIP, q.Backend))
	}
	return q.BackendName.Check()
}

func (q *BackendSet) do(ctx context.Context, inst *datapath.Instance, r *Result) error {
	s, err := q.check(&q.BackendName)
	if err != nil {
		return err
	}
	k, a, err := q.named(inst)
	if err != nil {
		return err
	}
	return editLB(ctx, inst, r, fmt.Sprintf("VIP %s: backend %s changed", k, a), func(state *lb.State) (bool, error) { return state.SetBackend(k, a, s) })
}

// BackendDel asks for a backend to be deleted.
type BackendDel struct{ BackendName }

func (q *BackendDel) do(ctx context.Context, inst *datapath.Instance, r *Result) error {
	k, a, err := q.named(inst)
	if err != nil {
		return err
	}
	return editLB(ctx, inst, r, fmt.Sprintf("VIP %s: backend %s deleted", k, a), func(state *lb.State) (bool, error) { return state.DeleteBackend(k, a) })
}
