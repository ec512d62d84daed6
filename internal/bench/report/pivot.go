// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"
	"strings"
)

// sized is a row with all its frame lengths.
type sized struct {
	name string
	// rows maps the name of a length to the row measured with it.
	rows map[string]*Row
}

// pivot arranges rows by frame length and by their name without it. sizes ascend, with mixes last.
func pivot(rows []Row) (sizes []string, series []sized) {
	length := map[string]int{}
	at := map[string]int{}
	for i := range rows {
		row := &rows[i]
		size := row.sizeName()
		if _, known := length[size]; !known {
			length[size], sizes = row.FrameSize, append(sizes, size)
		}
		base := withoutSize(row.Name)
		n, known := at[base]
		if !known {
			n = len(series)
			at[base], series = n, append(series, sized{name: base, rows: map[string]*Row{}})
		}
		series[n].rows[size] = row
	}
	slices.SortStableFunc(sizes, func(a, b string) int {
		if (length[a] == 0) != (length[b] == 0) {
			return cmp.Compare(length[b], length[a])
		}
		return cmp.Compare(length[a], length[b])
	})
	return sizes, series
}

// withoutSize is a row's name without the frame length: redirect for "redirect@512".
func withoutSize(name string) string {
	parts := strings.Split(name, "@")
	kept := slices.DeleteFunc(parts[1:], isSize)
	return strings.Join(append(parts[:1:1], kept...), "@")
}
