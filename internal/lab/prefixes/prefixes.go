// SPDX-License-Identifier: Apache-2.0

// Package prefixes reads a full table of real prefixes, as the routers of the Internet carry it, and makes
// smaller and larger tables from it.
//
// The table is test data of the module github.com/gaissmai/bart, which culvert's go.mod names anyway: it is
// read where that module is, and never copied into this one.
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

// File is the table's name, in the module and where 'culvert lab build' copies it.
const File = "prefixes.txt.gz"

// Load reads a table: gzip, one prefix a line. The path is the file's, or that of a directory with File in
// it. Both lists are in the order of their addresses, shorter prefixes first, without doubles.
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

// order sorts prefixes by address and length and drops doubles. It works in place.
func order(all []netip.Prefix) []netip.Prefix {
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// Without returns the prefixes that share no address with any of the others, which are for what a table must
// not reach into: the addresses of a test network, loopback, multicast. A default route shares with everything.
func Without(all, others []netip.Prefix) []netip.Prefix {
	kept := make([]netip.Prefix, 0, len(all))
	for _, p := range all {
		if !slices.ContainsFunc(others, p.Overlaps) {
			kept = append(kept, p)
		}
	}
	return kept
}

// Sample returns n of the prefixes, the same ones each time, evenly spread over the list; all when there are
// not more than n.
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
