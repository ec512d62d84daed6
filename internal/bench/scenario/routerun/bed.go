// SPDX-License-Identifier: Apache-2.0

package routerun

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
)

// bed is a namespace with a router's routes, between a generator and a sink. A full table takes much memory and long to
// install, so all rows share the bed. Each device under test is on In only during its own rounds.
type bed struct {
	tester, under *load.Netns
	path          peer.Path
	table         table
	writer        *writer
	sink          *load.Sink
	// refused counts the packets that devices on the path refuse. It slows all rows down equally.
	refused *load.Refusals
	// install is how long the kernel took to install the routes.
	install time.Duration
	// devices are the devices of rows, by the name of the candidate. order has the names in the order of preparation.
	devices map[string]peer.Preparer
	order   []string
}

// newBed builds the path and installs the routes. The caller must call Close, also after an error.
func newBed(ctx context.Context, t table) (b *bed, err error) {
	b = &bed{table: t, devices: map[string]peer.Preparer{}}
	p := &b.path
	steps := []func() error{
		func() error { b.tester, err = load.NewNetns(); return err },
		func() error { b.under, err = load.NewNetns(); return err },
		func() error { p.Source, p.In, err = load.NewWire(b.tester, b.under, "cvsource", "cvin", 0); return err },
		func() error { p.Sink, p.Out, err = load.NewWire(b.tester, b.under, "cvsink", "cvout", 0); return err },
		func() error { return addressRouter(*p) },
		func() error { return b.under.Do(func() error { return setRouting(*p) }) },
		func() error { b.sink, err = load.NewSink(p.Sink, load.SinkOptions{Port: load.DiscardPort}); return err },
		func() error { b.refused, err = load.WatchRefusals(p.Source, p.Out); return err },
		func() error { b.writer, err = newWriter(b.under, p.Out.Index); return err },
		func() error {
			start := time.Now()
			err := errors.Join(t.install(ctx, b.writer, false), t.install(ctx, b.writer, true))
			b.install = time.Since(start)
			return err
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return b, err
		}
	}
	return b, nil
}

// addressRouter gives a router its addresses and neighbors.
func addressRouter(p peer.Path) error {
	for _, side := range []struct {
		at, far load.End
		net     netip.Prefix
	}{
		{p.In, p.Source, netIn4}, {p.In, p.Source, netIn6}, {p.Out, p.Sink, netOut4}, {p.Out, p.Sink, netOut6},
	} {
		own := side.net.Addr().Next()
		if err := side.at.Assign(netip.PrefixFrom(own, side.net.Bits())); err != nil {
			return err
		}
		neighbors := []netip.Addr{own.Next()}
		if side.at.Index == p.Out.Index {
			neighbors = gatewaysOf(own.Is6())
		}
		for _, n := range neighbors {
			if err := side.at.SetNeighbor(n, side.far.MAC); err != nil {
				return err
			}
		}
	}
	return nil
}

// setRouting makes the namespace of the calling thread a router. Source validation is off, as on routers with a full table,
// because their routes are seldom symmetric.
func setRouting(p peer.Path) error {
	for _, set := range []struct{ name, value string }{
		{"ipv4/conf/all/rp_filter", "0"}, {"ipv4/conf/" + p.In.Name + "/rp_filter", "0"},
		{"ipv4/conf/" + p.Out.Name + "/rp_filter", "0"},
		{"ipv4/ip_forward", "1"}, {"ipv6/conf/all/forwarding", "1"},
	} {
		if err := os.WriteFile("/proc/sys/net/"+set.name, []byte(set.value), 0); err != nil {
			return fmt.Errorf("make a namespace a router: set %s to %s: %w", set.name, set.value, err)
		}
	}
	return nil
}

// prepare makes the device of a candidate and prepares it.
func (b *bed) prepare(ctx context.Context, c peer.Candidate, o scenario.Options) error {
	d, ok := c.Device(o.DeviceOptions()).(peer.Preparer)
	if !ok {
		return fmt.Errorf("set %s up: its device cannot be prepared beside others", c.Name)
	}
	b.devices[c.Name] = d
	b.order = append(b.order, c.Name)
	if err := d.Prepare(ctx, b.path); err != nil {
		return fmt.Errorf("set %s up: %w", c.Name, err)
	}
	return nil
}

// Close removes the router with all its routes.
func (b *bed) Close() error {
	var err error
	for _, name := range b.order {
		err = errors.Join(err, b.devices[name].Release())
	}
	if b.writer != nil {
		err = errors.Join(err, b.writer.Close())
	}
	err = errors.Join(err, b.refused.Close())
	if b.sink != nil {
		err = errors.Join(err, b.sink.Close())
	}
	for _, s := range []*load.Netns{b.tester, b.under} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}
