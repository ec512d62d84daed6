// SPDX-License-Identifier: Apache-2.0

package routerun

import (
	"context"
	"fmt"
	"os"

	"culvert/internal/bench/peer"
)

// Costliest is a row with the costliest packet for the router that is known: the kernel's FIB is also asked for the route
// back to its source.
func Costliest() peer.Candidate {
	return peer.Candidate{Name: "dear-route4", Device: func(peer.DeviceOptions) peer.Device {
		return &costliest{insnRouter{router: &culvert{noMirror: true}, size: peer.FrameSize}}
	}}
}

// costliest is a router on which Linux validates the sources of packets (rp_filter).
type costliest struct{ insnRouter }

func (d *costliest) Attach(ctx context.Context, p peer.Path) error {
	err := p.In.Netns.Do(func() error {
		const loose = "2"
		return os.WriteFile("/proc/sys/net/ipv4/conf/"+p.In.Name+"/rp_filter", []byte(loose), 0)
	})
	if err != nil {
		return fmt.Errorf("turn source validation on for %s: %w", p.In.Name, err)
	}
	return d.insnRouter.Attach(ctx, p)
}
