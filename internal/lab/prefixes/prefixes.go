// SPDX-License-Identifier: Apache-2.0

// Package prefixes reads a full table of real prefixes, as routers of the Internet have it, and makes smaller and larger
// tables from it.
//
// The table is test data of the module github.com/gaissmai/bart, on which culvert depends anyway. It is not copied into
// culvert's sources.
package prefixes

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// File is the name of the table's file, in the module and beside the reference programs.
const File = "prefixes.txt.gz"

// Load reads a table: a gzip file with one prefix a line. path is that of the file, or of a directory with File in it. Both
// lists are sorted by address, shorter prefixes first, and have no duplicates.
func Load(path string) (v4, v6 []netip.Prefix, err error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		path = filepath.Join(path, File)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read the table of prefixes: %w: run 'culvert lab build' in a checkout of culvert", err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, nil, fmt.Errorf("read the table of prefixes %s: %w: run 'culvert lab build' again", path, err)
	}
	lines := bufio.NewScanner(z)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() {
			return nil, nil, fmt.Errorf("read the table of prefixes %s: line %d, %q, is no prefix", path, n, text)
		}
		if p.Addr().Is4() {
			v4 = append(v4, p)
		} else {
			v6 = append(v6, p)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, nil, fmt.Errorf("read the table of prefixes %s: %w: run 'culvert lab build' again", path, err)
	}
	return order(v4), order(v6), nil
}

// order sorts prefixes by address and length and drops duplicates, in place.
func order(all []netip.Prefix) []netip.Prefix {
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// Without returns the prefixes that overlap none of the others, such as the addresses of a test network, loopback and
// multicast. A default route overlaps every prefix.
func Without(all, others []netip.Prefix) []netip.Prefix {
	kept := make([]netip.Prefix, 0, len(all))
	for _, p := range all {
		if !slices.ContainsFunc(others, p.Overlaps) {
			kept = append(kept, p)
		}
	}
	return kept
}

// Sample returns n of the prefixes, evenly spread over the list and the same ones each time, or all if there are not more
// than n.
func Sample(all []netip.Prefix, n int) []netip.Prefix {
	if n >= len(all) {
		return slices.Clone(all)
	}
	some := make([]netip.Prefix, 0, max(n, 0))
	for i := range n {
		some = append(some, all[i*len(all)/n])
	}
	return some
}
