// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"fmt"
	"net/netip"
	"slices"

	"culvert/internal/datapath"
	"culvert/internal/lb"
	"culvert/internal/stage"
)

// Only this host knows of a connection that was opened by a SYN cookie. A backend would answer its packets with resets. So a
// service cannot be both protected and a VIP.

// protectedVIP returns the first protected service that a VIP has too, and that VIP.
func protectedVIP(services []netip.AddrPort, vips []lb.VIP) (s netip.AddrPort, vip lb.Service, found bool) {
	for _, s := range services {
		at := slices.IndexFunc(vips, func(v lb.VIP) bool {
			k := v.Service
			return k.Protocol == lb.TCP && k.Addr == s.Addr() && (k.Port == 0 || k.Port == s.Port())
		})
		if at >= 0 {
			return s, vips[at].Service, true
		}
	}
	return s, vip, false
}

// refuseProtected returns an error if a service is both protected and a VIP.
func refuseProtected(services []netip.AddrPort, vips []lb.VIP) error {
	if s, vip, found := protectedVIP(services, vips); found {
		return fmt.Errorf("%s cannot be protected by SYN cookies and be VIP %s at once: its backends would reset connections that they "+
			"have not opened; protect it on the backends", s, vip)
	}
	return nil
}

// protector is the plan of a stage that answers clients in the name of services.
type protector interface {
	Protected(running *datapath.Instance) (byHand, inFile []netip.AddrPort, err error)
	LocateService(inFile netip.AddrPort, err error) error
}

// checkProtected returns an error if a VIP is protected, by the file or by hand on the running data plane.
func checkProtected(s stage.Situation, vips []lb.VIP) error {
	for _, plan := range s.Stages {
		p, ok := plan.(protector)
		if !ok {
			continue
		}
		byHand, inFile, err := p.Protected(s.Running)
		if err != nil {
			return err
		}
		if err := refuseProtected(byHand, vips); err != nil {
			return fmt.Errorf("%w, or end that: culvert filter unprotect ADDRESS:PORT", err)
		}
		if service, _, found := protectedVIP(inFile, vips); found {
			return p.LocateService(service, refuseProtected(inFile, vips))
		}
	}
	return nil
}
