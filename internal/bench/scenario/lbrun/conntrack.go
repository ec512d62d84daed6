// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Files with what connection tracking is bounded by: the most entries of a namespace, and the length of the hash table that
// all namespaces share.
const (
	conntrackMost    = "/proc/sys/net/netfilter/nf_conntrack_max"
	conntrackBuckets = "/sys/module/nf_conntrack/parameters/hashsize"
)

// roomForFlows has connection tracking take so many flows in each namespace, with as many places in its table, as one would
// set it for that. The function that it returns sets both back.
func roomForFlows(flows uint32) (back func() error, err error) {
	type setting struct{ file, was string }
	var changed []setting
	back = func() error {
		var err error
		for _, s := range changed {
			err = errors.Join(err, os.WriteFile(s.file, []byte(s.was), 0))
		}
		return err
	}
	for _, file := range []string{conntrackMost, conntrackBuckets} {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // nothing tracks connections on this machine
		}
		was := strings.TrimSpace(string(text))
		have, parseErr := strconv.ParseUint(was, 10, 64)
		if err = errors.Join(err, parseErr); err == nil && have < uint64(flows) {
			if err = os.WriteFile(file, strconv.AppendUint(nil, uint64(flows), 10), 0); err == nil {
				changed = append(changed, setting{file, was})
			}
		}
		if err != nil {
			return back, fmt.Errorf("have connection tracking take %d flows: %w", flows, err)
		}
	}
	return back, nil
}
