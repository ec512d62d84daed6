// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf/ringbuf"

	"culvert/internal/bpfobj"
)

// WantedHosts calls want for each end host whose packets take the slow path because it has no next hop. It is called
// again for the same host as long as that is so. WantedHosts returns when ctx is done.
func (p Plane) WantedHosts(ctx context.Context, want func(netip.Addr)) error {
	r, err := ringbuf.NewReader(p.Map(bpfobj.PipelineMapScionWanted))
	if err != nil {
		return fmt.Errorf("reading the hosts wanted by %s: %w", p.Name(), err)
	}
	stop := context.AfterFunc(ctx, func() { r.Close() })
	defer stop()
	defer r.Close()
	var rec ringbuf.Record
	for {
		if err := r.ReadInto(&rec); err != nil {
			if errors.Is(err, ringbuf.ErrClosed) {
				return nil
			}
			return fmt.Errorf("reading the hosts wanted by %s: %w", p.Name(), err)
		}
		if len(rec.RawSample) >= 16 {
			want(netip.AddrFrom16([16]byte(rec.RawSample)).Unmap())
		}
	}
}
