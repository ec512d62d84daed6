// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"os"
)

// RouteDear is the packet that takes the router longest, as far as is known: the kernel is asked for the way back as well.
func RouteDear() candidate {
	return candidate{name: "dear-route4", device: func(Terms) Device {
		return &routeDear{insnRoute{router: &routeCulvert{noMirror: true}, size: frameSize}}
	}}
}

// routeDear has Linux look where packets come from (rp_filter).
type routeDear struct{ insnRoute }

func (d *routeDear) Attach(ctx context.Context, p Path) error {
	err := p.In.Space.Do(func() error {
		const loose = "2"
		return os.WriteFile("/proc/sys/net/ipv4/conf/"+p.In.Name+"/rp_filter", []byte(loose), 0)
	})
	if err != nil {
		return fmt.Errorf("have the sources of packets looked at: %w", err)
	}
	return d.insnRoute.Attach(ctx, p)
}
