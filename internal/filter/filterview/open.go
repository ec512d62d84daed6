// SPDX-License-Identifier: Apache-2.0

// Package filterview shows the filter of a running data plane: its rules and what they count, once or
// live, and what they would do with the packets of a file.
package filterview

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"culvert/internal/datapath"
	"culvert/internal/show/usage"
)

// Open opens the data plane of a name in this network namespace, "" for the only one.
func Open(name string) (*datapath.Instance, error) {
	all, err := datapath.ListHere()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, i := range all {
		names = append(names, i.Name())
	}
	slices.Sort(names)
	at := slices.IndexFunc(all, func(i *datapath.Instance) bool { return i.Name() == name })
	if name == "" && len(all) == 1 {
		at = 0
	}
	for n, i := range all {
		if n != at {
			i.Close()
		}
	}
	switch {
	case at >= 0:
		return all[at], nil
	case len(all) == 0:
		return nil, errors.New("no data plane in this network namespace: attach one with 'culvert attach -c FILE IFACE...', " +
			"where FILE has a [filter] table")
	case name == "":
		return nil, usage.Errorf("there are %d data planes here: say --on with one of %s", len(all), strings.Join(names, ", "))
	default:
		return nil, fmt.Errorf("no data plane %s in this network namespace: there is %s", name, strings.Join(names, ", "))
	}
}
