// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Files with the limits of connection tracking: the number of entries of a namespace, and the number of buckets in the hash
// table that all namespaces share.
const (
	conntrackMax     = "/proc/sys/net/netfilter/nf_conntrack_max"
	conntrackBuckets = "/sys/module/nf_conntrack/parameters/hashsize"
)

// roomForFlows raises the limits of connection tracking to the given number of flows in each namespace, with as many buckets,
// as an administrator would. restore sets both limits back. It is never nil.
func roomForFlows(flows uint32) (restore func() error, err error) {
	type setting struct{ file, value string }
	var changed []setting
	restore = func() error {
		var err error
		for _, s := range changed {
			err = errors.Join(err, os.WriteFile(s.file, []byte(s.value), 0))
		}
		return err
	}
	for _, file := range []string{conntrackMax, conntrackBuckets} {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // the kernel has no connection tracking
		}
		before := strings.TrimSpace(string(text))
		limit, parseErr := strconv.ParseUint(before, 10, 64)
		if err = errors.Join(err, parseErr); err == nil && limit < uint64(flows) {
			if err = os.WriteFile(file, strconv.AppendUint(nil, uint64(flows), 10), 0); err == nil {
				changed = append(changed, setting{file, before})
			}
		}
		if err != nil {
			return restore, fmt.Errorf("raise the limits of connection tracking to %d flows: %w", flows, err)
		}
	}
	return restore, nil
}
