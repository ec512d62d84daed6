// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net"
	"slices"

	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/route/routeplane"
	"culvert/internal/scion/scionplane"
)

// The functions below list names for a shell to complete. What cannot be read is left out.

// Routers lists the IDs of the routers on this machine.
func Routers() []string {
	return collect(datapath.List, func(i *datapath.Instance) []string { return []string{i.Name()} })
}

// SCIONRouters lists the IDs of the SCION routers on this machine.
func SCIONRouters() []string { return routersThat(scionplane.Routes) }

// IPRouters lists the names of the data planes that route IP packets.
func IPRouters() []string {
	return routersThat(func(i *datapath.Instance) bool { return routeplane.OptionsOf(i) != nil })
}

// RoutersHere lists the names of the data planes of this network namespace.
func RoutersHere() []string {
	return collect(datapath.ListHere, func(i *datapath.Instance) []string { return []string{i.Name()} })
}

// FilterRules lists the names of the filter's rules in this network namespace.
func FilterRules() []string {
	return ofFilter(func(f filterplane.Filter) (names []string) {
		for _, r := range f.Rules {
			names = append(names, r.Name)
		}
		return names
	})
}

// FilterSets lists the names of the filter's sets in this network namespace.
func FilterSets() []string {
	return ofFilter(func(f filterplane.Filter) (names []string) {
		for _, s := range f.Sets {
			names = append(names, s.Name)
		}
		return names
	})
}

// FilterServices lists the protected services of this network namespace.
func FilterServices() []string {
	return ofFilter(func(f filterplane.Filter) (names []string) {
		for _, s := range f.Services {
			names = append(names, s.Addr.String())
		}
		return names
	})
}

// ofFilter gathers names from the filters of this network namespace.
func ofFilter(names func(filterplane.Filter) []string) []string {
	return collect(datapath.ListHere, func(i *datapath.Instance) []string {
		f, err := filterplane.Read(i)
		if err != nil {
			return nil
		}
		return names(f)
	})
}

// routersThat lists the names of the data planes on this machine for which fit returns true.
func routersThat(fit func(*datapath.Instance) bool) []string {
	return collect(datapath.List, func(i *datapath.Instance) []string {
		if !fit(i) {
			return nil
		}
		return []string{i.Name()}
	})
}

// title names a data plane in a message: as a router if it has a SCION router or the IP router.
func title(i *datapath.Instance) string {
	if scionplane.Routes(i) || routeplane.OptionsOf(i) != nil {
		return "router " + i.Name()
	}
	return "data plane " + i.Name()
}

// RouterInterfaces lists the interfaces that routers of an ID are attached to.
func RouterInterfaces(id string) []string {
	return collect(datapath.List, func(i *datapath.Instance) []string {
		if i.Name() != id {
			return nil
		}
		return i.Attached()
	})
}

// AttachedInterfaces lists the interfaces of this network namespace that carry culvert.
func AttachedInterfaces() []string { return collect(datapath.ListHere, (*datapath.Instance).Attached) }

// HostInterfaces lists the interfaces of this network namespace, without loopback.
func HostInterfaces() []string {
	all, _ := net.Interfaces()
	var names []string
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 {
			names = append(names, i.Name)
		}
	}
	return names
}

// collect gathers names from instances. It returns them sorted and without duplicates.
func collect(list func() ([]*datapath.Instance, error), names func(*datapath.Instance) []string) []string {
	all, err := list()
	if err != nil {
		return nil
	}
	defer closeAll(all)
	var found []string
	for _, i := range all {
		found = append(found, names(i)...)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// LBDataPlanes lists the data planes of this network namespace that have a load balancer, for a shell to complete.
func LBDataPlanes() []string {
	return collect(datapath.ListHere, func(i *datapath.Instance) []string {
		if lbplane.OptionsOf(i) == nil {
			return nil
		}
		return []string{i.Name()}
	})
}

// LBVIPs lists the VIPs of these data planes.
func LBVIPs() []string {
	return ofVIPs(func(v lb.VIP) []string { return []string{v.Service.String()} })
}

// LBBackends lists the backends of a VIP.
func LBBackends(vip string) []string {
	return ofVIPs(func(v lb.VIP) (names []string) {
		if v.Service.String() == vip {
			for _, b := range v.Backends {
				names = append(names, b.Addr.String())
			}
		}
		return names
	})
}

// ofVIPs gathers names from all VIPs of this network namespace.
func ofVIPs(names func(lb.VIP) []string) []string {
	return collect(datapath.ListHere, func(i *datapath.Instance) (all []string) {
		vips, _ := vipsOf(i) // what cannot be read is not completed
		for _, v := range vips {
			all = append(all, names(v)...)
		}
		return all
	})
}

// vipsOf returns the VIPs of a data plane, none if it has no load balancer.
func vipsOf(inst *datapath.Instance) ([]lb.VIP, error) {
	if lbplane.OptionsOf(inst) == nil {
		return nil, nil
	}
	p, err := lbplane.View(inst)
	if err != nil {
		return nil, err
	}
	s, err := lb.Load(p)
	return s.VIPs, err
}
