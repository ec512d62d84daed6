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

// WantedHosts calls want for each end host that packets had to go to the slow path for, because it
// has no next hop, until ctx is done. The same host comes again and again until it has one.
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
