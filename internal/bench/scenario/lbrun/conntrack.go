// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Files with the limits of connection tracking: the number of entries of a namespace, and the number of buckets in the hash
// table that all namespaces share.
const (
	conntrackMax     = "/proc/sys/net/netfilter/nf_conntrack_max"
	conntrackBuckets = "/sys/module/nf_conntrack/parameters/hashsize"
)

// lockLimits waits until no other measurement on this machine has raised the limits, in whatever namespaces it runs. Otherwise the
// one that ends last would leave what the other has set. There is nothing to wait for without connection tracking.
func lockLimits(ctx context.Context) (unlock func() error, err error) {
	dir, err := os.Open(filepath.Dir(conntrackBuckets))
	if errors.Is(err, os.ErrNotExist) {
		return func() error { return nil }, nil
	}
	for err == nil {
		if err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(50 * time.Millisecond):
			err = nil
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wait until no other measurement has raised the limits of connection tracking: %w", err), dir.Close())
	}
	return dir.Close, nil
}

// roomForFlows raises the limits of connection tracking to the given number of flows in each namespace, with as many buckets,
// as an administrator would. Other measurements that do so wait until restore sets both limits back. It is never nil.
func roomForFlows(ctx context.Context, flows uint32) (restore func() error, err error) {
	type setting struct{ file, value string }
	var changed []setting
	unlock, err := lockLimits(ctx)
	if err != nil {
		return func() error { return nil }, err
	}
	restore = func() error {
		var err error
		for _, s := range changed {
			err = errors.Join(err, os.WriteFile(s.file, []byte(s.value), 0))
		}
		return errors.Join(err, unlock())
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
