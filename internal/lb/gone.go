// SPDX-License-Identifier: Apache-2.0

package lb

import "fmt"

// Gone returns the names of VIPs and backends from the configuration file and its sources that are in before and not in after.
func Gone(before, after State) (names []string) {
	for _, v := range before.VIPs {
		now := after.find(v.Service)
		if now == nil {
			if v.File {
				names = append(names, fmt.Sprintf("VIP %s", v.Service))
			}
			continue
		}
		for _, b := range v.Backends {
			if !b.byHand() && now.find(b.Addr) == nil {
				names = append(names, fmt.Sprintf("VIP %s backend %s", v.Service, b.Addr))
			}
		}
	}
	return names
}
