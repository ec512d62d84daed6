// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"io"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/host/bpffs"
	"culvert/internal/host/netdev"
)

// blastDevice finds the device to send from. It refuses a device that is down, that would lose all frames, or that the
// machine is reached by.
func blastDevice(netns *Netns, o BlastOptions) (End, error) {
	from, err := FindEnd(netns, o.Device)
	if err != nil {
		return End{}, err
	}
	dev, err := netns.nl.LinkByIndex(from.Index)
	if err != nil {
		return End{}, fmt.Errorf("find %s: %w", o.Device, err)
	}
	if dev.Attrs().Flags&net.FlagUp == 0 {
		return End{}, fmt.Errorf("%s is down: ip link set dev %s up", o.Device, o.Device)
	}
	if !o.Force && inHostNetns() {
		if err := refuseDefaultRoute(from); err != nil {
			return End{}, err
		}
	}
	if o.Generator == KernelSource {
		return from, checkTakesFrames(from, dev)
	}
	return from, nil
}

// inHostNetns is a variable because tests run in namespaces of their own and replace it.
var inHostNetns = isHostNetns

// isHostNetns tells whether the thread is in the network namespace that the machine is reached by: that of PID 1, or of the
// oldest process that is visible (see bpffs.HostProcess). It is true if that cannot be found out.
func isHostNetns() bool {
	var own, host unix.Stat_t
	if unix.Stat("/proc/thread-self/ns/net", &own) != nil || unix.Stat(bpffs.HostProcess()+"/ns/net", &host) != nil {
		return true
	}
	return own.Ino == host.Ino
}

// refuseDefaultRoute returns an error if a default route uses the device: a flood there could cut the machine off.
func refuseDefaultRoute(e End) error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := e.Netns.nl.RouteList(nil, family)
		if err != nil {
			return fmt.Errorf("read the routes: %w", err)
		}
		for _, r := range routes {
			if r.Dst != nil {
				if ones, _ := r.Dst.Mask.Size(); ones > 0 {
					continue
				}
			}
			uses := r.LinkIndex == e.Index
			for _, hop := range r.MultiPath {
				uses = uses || hop.LinkIndex == e.Index
			}
			if uses {
				return fmt.Errorf("%s carries the default route: a flood there can cut this machine off; "+
					"--force sends all the same", e.Name)
			}
		}
	}
	return nil
}

// checkTakesFrames returns an error if XDP programs cannot send from the device: the kernel would lose every frame without
// counting it. Kernels before 6.3 do not say, so there it returns nil.
func checkTakesFrames(e End, dev netlink.Link) error {
	return e.Netns.Do(func() error {
		c, err := netdev.Open(netdev.XDPFamily)
		if err != nil {
			return nil
		}
		defer c.Close()
		acts, ok := c.XDPActs(e.Index)
		switch {
		case !ok || acts&netdev.ActXmit != 0:
			return nil
		case dev.Type() == "veth":
			return fmt.Errorf("%s loses every frame, because its peer does not take them: attach an XDP program there, "+
				"or ethtool -K PEER gro on", e.Name)
		default:
			return fmt.Errorf("%s cannot send frames of XDP programs: use --generator tcpreplay", e.Name)
		}
	})
}

// transmit holds a device's counters of packets that it sends.
type transmit struct {
	packets, dropped uint64
}

func readTransmit(e End) (transmit, error) {
	dev, err := e.Netns.nl.LinkByIndex(e.Index)
	if err != nil {
		return transmit{}, fmt.Errorf("read the counters of %s: %w", e.Name, err)
	}
	s := dev.Attrs().Statistics
	if s == nil {
		return transmit{}, fmt.Errorf("read the counters of %s: the kernel gave none", e.Name)
	}
	return transmit{packets: s.TxPackets, dropped: s.TxDropped}, nil
}

// watchTransmit writes a line a second with the rate of the device, until the run ends. It returns the run's outcome.
func watchTransmit(e End, last transmit, progress io.Writer, done <-chan outcome) outcome {
	const interval = time.Second
	tick := time.NewTicker(interval)
	defer tick.Stop()
	at := time.Now()
	for {
		select {
		case end := <-done:
			return end
		case now := <-tick.C:
			t, err := readTransmit(e)
			if err != nil {
				// The run itself fails if the device is gone.
				continue
			}
			mpps := float64(t.packets-last.packets) / now.Sub(at).Seconds() / 1e6
			fmt.Fprintf(progress, "%s: %.3f Mpps, %d not taken by the device\n", e.Name, mpps, t.dropped-last.dropped)
			last, at = t, now
		}
	}
}
