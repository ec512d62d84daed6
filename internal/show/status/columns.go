// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"
)

// column is a column of the live table. The first column is left-aligned, the others right-aligned.
type column struct {
	// width is the width in cells.
	width int
	// rank is the order in which columns are left out of a narrow terminal, the highest rank first. Columns of rank 0 are
	// never left out.
	rank int
}

// The columns of the live table. All of them fit into 80 cells. Those of rank 0 show drops and losses. What came in is the
// last to be left out.
var (
	// name, received, bits, forward, slow path, kernel, drop, lost
	listColumns = []column{{17, 0}, {10, 1}, {9, 5}, {9, 2}, {11, 3}, {8, 4}, {7, 0}, {7, 0}}
	// reason, packets a second, bits a second, packets, bytes
	detailColumns = []column{{34, 0}, {10, 0}, {10, 2}, {16, 1}, {10, 3}}
)

// columns returns a line with the cells of those columns that fit into a width.
func columns(all []column, width int, cells ...string) string {
	total, last := 0, 0
	for _, c := range all {
		total += c.width
		last = max(last, c.rank)
	}
	leftOut := last + 1 // columns of this rank and above
	for total > width && leftOut > 1 {
		leftOut--
		for _, c := range all {
			if c.rank == leftOut {
				total -= c.width
			}
		}
	}
	var b strings.Builder
	for n, c := range all {
		switch {
		case n == 0:
			fmt.Fprintf(&b, "%-*s", c.width, cells[n])
		case c.rank < leftOut:
			fmt.Fprintf(&b, "%*s", c.width, cells[n])
		}
	}
	return b.String()
}
