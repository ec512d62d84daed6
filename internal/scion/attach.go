// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/datapath"
	"culvert/internal/stats"
)

// plane is the eBPF data plane as Run wants it.
type plane struct{ *datapath.Instance }

func (p plane) SetOwnKey(key [16]byte) error {
	if err := p.ReplaceKey(key); err != nil {
		return err
	}
	return p.SetSlowPathKey(key)
}

func (p plane) Detach() error { return p.DetachAll() }

func (p plane) Close() error {
	p.Instance.Close()
	return nil
}

// Kernel returns what Run needs to work with the data plane in the kernel. Generic mode is for
// drivers without native XDP; workers are the CPUs that packets are spread over, if there are any.
func Kernel(generic bool, workers datapath.Workers) Deps {
	return Deps{
		Attach: func(r *Router, interfaces []string) (DataPlane, error) {
			inst, err := datapath.Attach(datapath.Options{
				Name:       r.ID(),
				Interfaces: interfaces,
				Generic:    generic,
				Workers:    workers,
			}, r.Datapath)
			if err != nil {
				return nil, err
			}
			return plane{inst}, nil
		},
		Collector: func(p DataPlane) prometheus.Collector {
			return stats.NewCollector(p.(plane))
		},
	}
}
