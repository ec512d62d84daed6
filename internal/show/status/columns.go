// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"
)

// column is a column of the live table; the first one stands left-aligned, the others right.
type column struct {
	// width is in cells.
	width int
	// rank says in which order columns go when there is no room: the highest first. Those of rank 0
	// stay.
	rank int
}

// All columns fit 80 cells. Trouble is what the narrowest terminal must show.
var (
	// name, received, bits, forward, slow path, kernel, drop, lost
	listColumns = []column{{18, 0}, {10, 2}, {9, 5}, {9, 1}, {11, 3}, {8, 4}, {8, 0}, {7, 0}}
	// reason, packets a second, bits a second, packets, bytes
	detailColumns = []column{{34, 0}, {10, 0}, {10, 2}, {16, 1}, {10, 3}}
)

// columns writes the cells of the columns that fit a width.
func columns(all []column, width int, cells ...string) string {
	total, last := 0, 0
	for _, c := range all {
		total += c.width
		last = max(last, c.rank)
	}
	gone := last + 1 // columns of this rank and above are left out
	for total > width && gone > 1 {
		gone--
		for _, c := range all {
			if c.rank == gone {
				total -= c.width
			}
		}
	}
	var b strings.Builder
	for n, c := range all {
		switch {
		case n == 0:
			fmt.Fprintf(&b, "%-*s", c.width, cells[n])
		case c.rank < gone:
			fmt.Fprintf(&b, "%*s", c.width, cells[n])
		}
	}
	return b.String()
}
