// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"slices"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/doctor"
	"culvert/internal/filter"
	"culvert/internal/scion"
)

// DoctorOptions adds to o what the configuration at path leads to: culvert's own file, or a
// router's TOML file.
func DoctorOptions(path string, o *doctor.Options) error {
	own, err := config.IsNode(path)
	if err != nil {
		return err
	}
	if own {
		n, err := config.Load(path)
		if err != nil {
			return err
		}
		if len(o.Interfaces) == 0 {
			o.Interfaces = n.Interfaces
		}
		o.Route, o.NoSCION = n.Route != nil, n.SCION == nil
		o.Bypass = n.Route != nil && n.Route.BypassNetfilter
		if n.Filter != nil {
			for _, s := range n.Filter.Services {
				addr, err := filter.ParseService(s.Address)
				if err != nil {
					return s.Locate("address", err)
				}
				protects(o, addr, s.Forwarded)
			}
		}
		if n.SCION == nil {
			return nil
		}
		path = n.SCION.Config
	}
	r, err := scion.LoadTopologyOnly(path)
	if err != nil {
		return err
	}
	local, remote := r.Underlay()
	o.Local = append(o.Local, local...)
	o.Remote = append(o.Remote, remote...)
	o.Sockets = r.Sockets()
	o.Server = scion.ServerPID(r.ID())
	return nil
}

// DoctorRunning adds to o what the data planes of this network namespace ask of the host. Those that cannot be read
// are left out: the privileges that it takes are a check of their own.
func DoctorRunning(o *doctor.Options) {
	all, err := datapath.ListHere()
	if err != nil {
		return
	}
	for _, inst := range all {
		f, err := inst.Filter()
		inst.Close()
		if err != nil {
			continue
		}
		for _, s := range f.Services {
			protects(o, s.Addr, s.Forwarded)
		}
	}
}

// protects adds what a protected service asks of the host.
func protects(o *doctor.Options, addr netip.AddrPort, forwarded bool) {
	switch {
	case forwarded:
		o.Forwarded = true
	case !slices.Contains(o.Protected, addr):
		o.Protected = append(o.Protected, addr)
	}
}
