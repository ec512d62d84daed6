// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// split takes a row's name apart: "culvert-cold@512" is row culvert-cold in variant 512.
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

// ours tells whether a row is one of culvert's, not of a peer's.
func ours(name string) bool {
	return strings.HasPrefix(name, "culvert") || strings.HasPrefix(name, "workers") || strings.HasPrefix(name, "mirror")
}

// workersPart is the part of a variant that says how many worker CPUs a row has, as in "culvert-cold@workers2".
var workersPart = regexp.MustCompile(`^workers[0-9]+$`)

// groupOf is the variant without the number of workers: rows with different numbers stand beside each other.
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

// group is the rows of a report that are one variant.
type group struct {
	variant string
	rows    []Row
}

// groups splits rows by variant, both in the order in which they come first.
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

// heading says in words what variant the rows are: the length of their frames, unless the suffix has it, and the
// suffix.
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

// frameSize is that of all rows, 0 if they differ or do not tell.
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

// sizeName names a row's frames in a table or on an axis: their length in bytes, or the variant if they are a mix.
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

// shortIn leaves a variant out of a row's name where a heading says it.
func shortIn(name, variant string) string {
	if base, v := split(name); v == variant {
		return base
	}
	return name
}
