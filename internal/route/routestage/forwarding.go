// SPDX-License-Identifier: Apache-2.0

package routestage

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
)

// watchForwarding logs on which interfaces the kernel does not forward, since the IP router does not forward there either.
func watchForwarding(ctx context.Context, interfaces func() []string, log *slog.Logger) error {
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	last := make(map[string]bool)
	for {
		for _, name := range interfaces() {
			for family, version := range map[string]string{"ipv4": "IPv4", "ipv6": "IPv6"} {
				key := fmt.Sprintf("net.%s.conf.%s.forwarding", family, name)
				off, known := forwardingOff(family, name)
				if !known || off == last[key] {
					continue
				}
				last[key] = off
				if off {
					log.Warn("the kernel does not forward "+version+" of an interface, and so the fast path does not: it is left to the kernel (route-off)",
						"interface", name, "mend", "sysctl -w net."+family+".conf.all.forwarding=1")
				} else {
					log.Info("the kernel forwards "+version+" of an interface, and so does the fast path", "interface", name)
				}
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// forwardingOff reads the sysctl in the network namespace of the calling thread. known is false if the kernel lacks the
// protocol or the interface.
func forwardingOff(family, name string) (off, known bool) {
	b, err := os.ReadFile("/proc/sys/net/" + family + "/conf/" + name + "/forwarding")
	if err != nil {
		return false, false
	}
	return strings.TrimSpace(string(b)) == "0", true
}
