// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// split splits a row's name: "culvert-cold@512" is row culvert-cold in variant 512.
func split(name string) (base, variant string) {
	base, variant, _ = strings.Cut(name, "@")
	return base, variant
}

// variantOf is a row's name in the variant of another row.
func variantOf(base, like string) string {
	if _, variant := split(like); variant != "" {
		return base + "@" + variant
	}
	return base
}

// isCulvert tells whether a row is one of culvert's, not one of a peer's.
func isCulvert(name string) bool {
	return strings.HasPrefix(name, "culvert") || strings.HasPrefix(name, "workers") || strings.HasPrefix(name, "mirror")
}

// workersPart is the part of a variant that says how many worker CPUs a row has, as in "culvert-cold@workers2".
var workersPart = regexp.MustCompile(`^workers[0-9]+$`)

// groupOf is the variant of a row without the number of workers. Rows with different numbers of workers are in one group.
func groupOf(name string) string {
	_, variant := split(name)
	parts := slices.DeleteFunc(strings.Split(variant, "@"), workersPart.MatchString)
	return strings.Join(parts, "@")
}

// isSize tells whether a part of a variant is a frame length: bytes, the shortest, or a mix.
func isSize(part string) bool {
	_, err := strconv.ParseUint(part, 10, 16)
	return err == nil || part == "min" || strings.EqualFold(part, "imix")
}

// group has the rows of a report in one variant.
type group struct {
	variant string
	rows    []Row
}

// groups groups rows by variant. Groups are in the order of their first rows.
func groups(rows []Row) []group {
	var all []group
	at := map[string]int{}
	for _, row := range rows {
		v := groupOf(row.Name)
		i, known := at[v]
		if !known {
			i = len(all)
			at[v], all = i, append(all, group{variant: v})
		}
		all[i].rows = append(all[i].rows, row)
	}
	return all
}

// heading describes the variant in words. It begins with the length of the frames.
func (g group) heading() string {
	var parts []string
	sized := false
	for part := range strings.SplitSeq(g.variant, "@") {
		if part == "" {
			continue
		}
		if size, err := strconv.ParseUint(part, 10, 16); err == nil {
			parts, sized = append(parts, fmt.Sprintf("%d-byte frames", size)), true
		} else if n, ok := strings.CutSuffix(part, "cpu"); ok && n != "" {
			parts = append(parts, n+" CPUs")
		} else if strings.EqualFold(part, "imix") {
			parts, sized = append(parts, "IMIX"), true
		} else if size := g.frameSize(); part == "min" && size > 0 {
			parts, sized = append(parts, fmt.Sprintf("%d-byte frames, the shortest", size)), true
		} else {
			parts = append(parts, part)
		}
	}
	if size := g.frameSize(); size > 0 && !sized {
		parts = append([]string{fmt.Sprintf("%d-byte frames", size)}, parts...)
	}
	return strings.Join(parts, ", ")
}

// frameSize is the frame size of all rows in bytes, 0 if they differ or have none.
func (g group) frameSize() int {
	size := 0
	for i, row := range g.rows {
		if i > 0 && row.FrameSize != size {
			return 0
		}
		size = row.FrameSize
	}
	return size
}

// sizeName is the frame size of a row as text: its length in bytes, or the variant if it is a mix.
func (row Row) sizeName() string {
	if row.FrameSize > 0 {
		return strconv.Itoa(row.FrameSize)
	}
	if _, v := split(row.Name); v != "" {
		if strings.EqualFold(v, "imix") {
			return "IMIX"
		}
		return v
	}
	return "mix"
}

// shortIn is a row's name under a heading for a variant, which it leaves out.
func shortIn(name, variant string) string {
	if base, v := split(name); v == variant {
		return base
	}
	return name
}
