// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"

	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/lb"
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

// refuseProtectedVIP is the error of a service that is both.
func refuseProtectedVIP(services []datapath.FilterService, vips []lb.VIP) error {
	if s, vip, found := protectedVIP(services, vips); found {
		return fmt.Errorf("%s cannot be protected by SYN cookies and be VIP %s at once: its backends would reset connections that they "+
			"have not opened; protect it on the backends", s.Addr, vip)
	}
	return nil
}

// checkProtectedVIPs looks at what a file has and at what was made by hand on the data plane that runs.
func checkProtectedVIPs(now running, w *wantedFilter, b *wantedBalance) error {
	if b == nil {
		return nil
	}
	merged, err := b.merge(now.balance)
	if err != nil {
		return err
	}
	services := slices.DeleteFunc(slices.Clone(now.filter.Services), func(s datapath.FilterService) bool { return s.File })
	if w != nil {
		services = append(services, w.filter.Services...)
	}
	err = refuseProtectedVIP(services, merged.VIPs)
	if err == nil {
		return nil
	}
	if s, _, _ := protectedVIP(services, merged.VIPs); w != nil && s.File {
		return w.locate(&filter.FileError{Table: filter.TableProtect, Name: s.Addr.String(), Part: "address", Err: err})
	}
	return fmt.Errorf("%w, or end that: culvert filter unprotect ADDRESS:PORT", err)
}
