// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/datapath"
	"culvert/internal/stats"
)

// plane is the eBPF data plane as Run wants it.
type plane struct {
	*datapath.Instance
	stop func() // ends what works on the same data plane, nil for nothing
}

func (p plane) SetOwnKey(key [16]byte) error {
	if err := p.ReplaceKey(key); err != nil {
		return err
	}
	return p.SetSlowPathKey(key)
}

func (p plane) Detach() error { return p.DetachAll() }

func (p plane) Close() error {
	if p.stop != nil {
		p.stop()
	}
	p.Instance.Close()
	return nil
}

// Kernel returns what Run needs to work with the data plane in the kernel. The options lack name and
// interfaces, which are the router's. Beside starts another stage's work on the same data plane, and returns
// what ends it; it may be nil.
func Kernel(o datapath.Options, beside func(*datapath.Instance) (stop func())) Deps {
	return Deps{
		Attach: func(r *Router, interfaces []string) (DataPlane, error) {
			o.Name, o.Interfaces = r.ID(), interfaces
			inst, err := datapath.Attach(o, r.Datapath)
			if err != nil {
				return nil, err
			}
			p := plane{Instance: inst}
			if beside != nil {
				p.stop = beside(inst)
			}
			return p, nil
		},
		Collector: func(p DataPlane) prometheus.Collector {
			return stats.NewCollector(p.(plane))
		},
	}
}
