// SPDX-License-Identifier: Apache-2.0

package node

import (
	"culvert/internal/config"
	"culvert/internal/doctor"
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
