// SPDX-License-Identifier: Apache-2.0

// Package filterview shows the filter of a running data plane: its rules and what they count, once or
// live, and what they would do with the packets of a file.
package filterview

import (
	"culvert/internal/datapath"
	"culvert/internal/show/planes"
)

// kind is what has a filter: any data plane.
var kind = planes.Kind{
	Name: "data plane", Plural: "data planes",
	None: "attach one with 'culvert attach -c FILE IFACE...', where FILE has a [filter] table",
}

// Open opens the data plane of a name in this network namespace, "" for the only one.
func Open(name string) (*datapath.Instance, error) { return planes.Open(name, kind) }
