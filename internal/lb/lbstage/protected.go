// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"fmt"
	"slices"

	"culvert/internal/datapath"
	"culvert/internal/lb"
	"culvert/internal/stage"
)

// A connection that was opened by a SYN cookie is known to this host alone: a backend would answer its packets with
// resets. So no service is both protected and a VIP.

// protectedVIP returns the first protected service that is a VIP's.
func protectedVIP(services []datapath.FilterService, vips []lb.VIP) (s datapath.FilterService, vip lb.Service, found bool) {
	for _, s := range services {
		at := slices.IndexFunc(vips, func(v lb.VIP) bool {
			k := v.Service
			return k.Protocol == lb.TCP && k.Addr == s.Addr.Addr() && (k.Port == 0 || k.Port == s.Addr.Port())
		})
		if at >= 0 {
			return s, vips[at].Service, true
		}
	}
	return s, vip, false
}

// RefuseProtected is the error of a service that is both.
func RefuseProtected(services []datapath.FilterService, vips []lb.VIP) error {
	if s, vip, found := protectedVIP(services, vips); found {
		return fmt.Errorf("%s cannot be protected by SYN cookies and be VIP %s at once: its backends would reset connections that they "+
			"have not opened; protect it on the backends", s.Addr, vip)
	}
	return nil
}

// protector is the plan of a stage that answers clients in the name of services.
type protector interface {
	Protected(running *datapath.Instance) ([]datapath.FilterService, error)
	LocateService(datapath.FilterService, error) error
}

// checkProtected looks at what the file has and at what was made by hand on the data plane that runs.
func checkProtected(s stage.Situation, vips []lb.VIP) error {
	for _, plan := range s.Plans {
		p, ok := plan.(protector)
		if !ok {
			continue
		}
		services, err := p.Protected(s.Running)
		if err != nil {
			return err
		}
		if err = RefuseProtected(services, vips); err == nil {
			continue
		}
		if service, _, _ := protectedVIP(services, vips); service.File {
			return p.LocateService(service, err)
		}
		return fmt.Errorf("%w, or end that: culvert filter unprotect ADDRESS:PORT", err)
	}
	return nil
}
