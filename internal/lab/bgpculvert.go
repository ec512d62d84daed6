// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/route/routeplane"
)

// StartCulvert starts a culvert binary in a namespace with a configuration. It does not wait.
func (l *Lab) StartCulvert(ns, binary, config string) error {
	return l.spawn(CulvertProcess(ns), ns, binary, "run", "-c", config)
}

// startCulvert starts culvert in a namespace and waits until it is attached to the interfaces.
func (l *Lab) startCulvert(ctx context.Context, w waiter, ns, config string, interfaces ...string) error {
	if err := l.StartCulvert(ns, l.Culvert, config); err != nil {
		return err
	}
	return w.until(ctx, "culvert in "+ns, func(context.Context) (bool, string) {
		var missing []string
		err := l.Do(ns, func() error {
			for _, name := range interfaces {
				link, err := netlink.LinkByName(name)
				if err != nil {
					return err
				}
				if xdp := link.Attrs().Xdp; xdp == nil || !xdp.Attached {
					missing = append(missing, name)
				}
			}
			return nil
		})
		switch {
		case err != nil:
			return false, err.Error()
		case len(missing) > 0:
			return false, "not attached to " + strings.Join(missing, ", ")
		}
		return true, "attached to " + strings.Join(interfaces, " and ")
	})
}

// waitMirror waits until culvert's mirror of rut's routing tables is current.
func (l *Lab) waitMirror(ctx context.Context, w waiter) error {
	return w.until(ctx, "culvert's mirror of the table", func(context.Context) (bool, string) {
		var current4, current6 bool
		err := l.Do("rut", func() (err error) {
			current4, current6, err = mirrorCurrent()
			return err
		})
		if err != nil {
			return false, oneLine(err.Error())
		}
		word := map[bool]string{true: "current", false: "not current"}
		return current4 && current6, fmt.Sprintf("IPv4 %s, IPv6 %s", word[current4], word[current6])
	})
}

// mirrorCurrent tells whether culvert's mirror of the routing tables in the calling thread's namespace is current.
func mirrorCurrent() (current4, current6 bool, err error) {
	all, err := datapath.ListHere()
	if err != nil {
		return false, false, err
	}
	for _, inst := range all {
		defer inst.Close()
	}
	if len(all) != 1 {
		return false, false, fmt.Errorf("%d data planes in rut", len(all))
	}
	if routeplane.OptionsOf(all[0]) == nil {
		return false, false, fmt.Errorf("the data plane %s in rut has no IP router", all[0].Name())
	}
	state, err := routeplane.ReadState(all[0])
	if err != nil {
		return false, false, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return false, false, fmt.Errorf("read the clock: %w", err)
	}
	at := time.Duration(now.Nano())
	return state.Until4 > at, state.Until6 > at, nil
}
