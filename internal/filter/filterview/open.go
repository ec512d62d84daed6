// SPDX-License-Identifier: Apache-2.0

// Package filterview shows the filter of a running data plane: its rules and their counters, once or live. It also shows what the
// rules would do with the packets of a file.
package filterview

import (
	"culvert/internal/datapath"
	"culvert/internal/show/planes"
)

// kind is any data plane: each one can have a filter.
var kind = planes.Kind{
	Name: "data plane", Plural: "data planes",
	None: "attach one with 'culvert attach -c FILE IFACE...', where FILE has a [filter] table",
}

// Open opens a data plane of this network namespace, given its name, "" for the only one.
func Open(name string) (*datapath.Instance, error) { return planes.Open(name, kind) }
