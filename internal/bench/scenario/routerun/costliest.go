// SPDX-License-Identifier: Apache-2.0

package routerun

import (
	"context"
	"fmt"
	"os"

	"culvert/internal/bench/peer"
)

// Dear is the packet that takes the router longest, as far as is known: the kernel is asked for the way back as well.
func Costliest() peer.Candidate {
	return peer.Candidate{Name: "dear-route4", Device: func(peer.DeviceOptions) peer.Device {
		return &costliest{insnRouter{router: &culvert{noMirror: true}, size: peer.FrameSize}}
	}}
}

// dearest has Linux look where packets come from (rp_filter).
type costliest struct{ insnRouter }

func (d *costliest) Attach(ctx context.Context, p peer.Path) error {
	err := p.In.Netns.Do(func() error {
		const loose = "2"
		return os.WriteFile("/proc/sys/net/ipv4/conf/"+p.In.Name+"/rp_filter", []byte(loose), 0)
	})
	if err != nil {
		return fmt.Errorf("have the sources of packets looked at: %w", err)
	}
	return d.insnRouter.Attach(ctx, p)
}
