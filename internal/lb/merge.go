// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
)

func (s *State) find(k Service) *VIP {
	for n := range s.VIPs {
		if s.VIPs[n].Service == k {
			return &s.VIPs[n]
		}
	}
	return nil
}

func (v *VIP) find(a netip.Addr) *Backend {
	for n := range v.Backends {
		if v.Backends[n].Addr == a {
			return &v.Backends[n]
		}
	}
	return nil
}

// Merge returns the state of the configuration file together with what was made by hand in running. VIPs and backends of an
// earlier file are left out, and what its sources have named stays with the sources of the file. What is in the file and was also made by hand, in the same way, becomes the file's. What is
// drained stays drained. Conflicts are returned as an *Error.
func Merge(running, file State) (State, error) {
	out := State{Source4: file.Source4, Source6: file.Source6, Generations: running.Generations}
	for _, f := range file.VIPs {
		v := f
		v.File = true
		v.Backends = nil
		was := running.find(v.Service)
		if was == nil {
			was = &VIP{File: true}
		}
		if !was.File && !sameVIP(*was, v) {
			return out, &Error{VIP: v.Service, Part: PartAddress, Err: fmt.Errorf("it is there already, made by hand and in another way: "+
				"delete it with 'culvert lb vip del %s', or say the same in the file", v.Service)}
		}
		v.Drained = was.Drained
		for _, b := range f.Backends {
			b.File = true
			if had := was.find(b.Addr); had != nil {
				if had.byHand() && !sameBackend(*had, b) {
					return out, &Error{VIP: v.Service, Backend: b.Addr, Part: PartAddress, Err: fmt.Errorf("it is there already, made by hand and in another way: "+
						"delete it with 'culvert lb backend del %s %s', or say the same in the file", v.Service, b.Addr)}
				}
				b.Drained = had.Drained
			}
			v.Backends = append(v.Backends, b)
		}
		for _, b := range was.Backends {
			if b.byHand() && v.find(b.Addr) == nil {
				v.Backends = append(v.Backends, b)
			}
		}
		v.takeOffers(was)
		out.VIPs = append(out.VIPs, v)
	}
	for _, v := range running.VIPs {
		switch hand := slices.IndexFunc(v.Backends, func(b Backend) bool { return b.byHand() }); {
		case out.find(v.Service) != nil:
		case !v.File:
			out.VIPs = append(out.VIPs, v)
		case hand >= 0:
			return out, &Error{VIP: v.Service, Backend: v.Backends[hand].Addr, Err: fmt.Errorf("it was made by hand, and the file has the VIP no more: "+
				"delete the backend with 'culvert lb backend del %s %s', or put the VIP back into the file", v.Service, v.Backends[hand].Addr)}
		}
	}
	return out, nil
}

// sameVIP compares VIPs without their backends, numbers and marks.
func sameVIP(a, b VIP) bool {
	for _, v := range []*VIP{&a, &b} {
		v.Backends, v.Offers, v.File, v.Drained, v.Number = nil, nil, false, false, 0
	}
	return reflect.DeepEqual(a, b)
}

// sameBackend compares a backend that runs with one of the file, without their marks. For a drained one weight 0 in the file, as
// 'culvert lb dump' writes it, says the same.
func sameBackend(a, b Backend) bool {
	if a.Drained && b.Weight == 0 {
		a.Weight = 0
	}
	for _, b := range []*Backend{&a, &b} {
		b.File, b.Offered, b.Drained, b.ID = false, "", false, 0
	}
	return a == b
}
