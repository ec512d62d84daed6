// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"slices"

	"culvert/internal/filter/filterplane"
)

// Gone names the rules, sets and services of the configuration file in before that are not in after.
func Gone(before, after filterplane.Filter) (names []string) {
	for _, r := range before.Rules {
		if r.File && indexRule(after.Rules, r.Name) < 0 {
			names = append(names, "rule "+r.Name)
		}
	}
	for _, s := range before.Sets {
		if s.File && indexSet(after.Sets, s.Name) < 0 {
			names = append(names, "set "+s.Name)
		}
	}
	for _, s := range before.Services {
		if s.File && !slices.ContainsFunc(after.Services, func(o filterplane.Service) bool { return o.Addr == s.Addr }) {
			names = append(names, "service "+s.Addr.String())
		}
	}
	return names
}
