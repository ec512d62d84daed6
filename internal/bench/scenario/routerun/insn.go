// SPDX-License-Identifier: Apache-2.0

package routerun

import (
	"context"
	"errors"

	"github.com/cilium/ebpf"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
	"culvert/internal/datapath"
	"culvert/internal/scion/scionpkt"
)

// insnRouter is a router on a path of its own, with few routes, for counting instructions.
type insnRouter struct {
	v6 bool
	// router is the device that forwards.
	router peer.Preparer
	writer *writer
	// size is the length of the frames in bytes.
	size int
	// several has one route by several gateways, of which the kernel chooses one for each flow, in the place of few routes.
	several bool
}

// routes is the router's table.
func (d *insnRouter) routes() table {
	if d.several {
		return wideRoutes(true)
	}
	return fewRoutes()
}

// InsnRouters returns the rows of routers in both families: programs by themselves, and all routers end to end.
func InsnRouters() (programs, paths []peer.Candidate) {
	several := false
	add := func(to *[]peer.Candidate, name string, router func() peer.Preparer) {
		several := several
		for _, v6 := range []bool{false, true} {
			family := "4"
			if v6 {
				family = "6"
			}
			*to = append(*to, peer.Candidate{Name: name + family, Device: func(peer.DeviceOptions) peer.Device {
				return &insnRouter{v6: v6, router: router(), size: peer.FrameSize, several: several}
			}})
		}
	}
	fib := func() peer.Preparer { return &programDevice{program: load.BenchProgBenchFib} }
	routeFIB := func() peer.Preparer { return &culvert{noMirror: true} }
	routeMirror := func() peer.Preparer { return &culvert{unfed: true} }
	add(&programs, "fib", fib)
	add(&programs, "route-fib", routeFIB)
	add(&programs, "route-mirror", routeMirror)
	add(&programs, "route-general", func() peer.Preparer { return &culvert{unfed: true, general: true} })
	add(&paths, "route-linux", func() peer.Preparer { return &programDevice{program: load.BenchProgBenchEmpty} })
	add(&paths, "fib", fib)
	add(&paths, "route-fib", routeFIB)
	add(&paths, "route-mirror", routeMirror)
	several = true
	add(&programs, "route-multi", routeMirror)
	add(&programs, "route-multi-fib", routeFIB)
	return programs, paths
}

// Mirror4 is the row of culvert's mirror and IPv4, for what is measured on top of it.
func Mirror4() peer.Candidate {
	return peer.Candidate{Name: "route-mirror4", Device: func(peer.DeviceOptions) peer.Device {
		return &insnRouter{router: &culvert{unfed: true}, size: peer.FrameSize}
	}}
}

// Instance returns the router's data plane, if it is culvert.
func (d *insnRouter) Instance() *datapath.Instance {
	if r, ok := d.router.(*culvert); ok {
		return r.inst
	}
	return nil
}

// Join adds a part to the router's data plane, before Attach, if it is culvert.
func (d *insnRouter) Join(part datapath.Part) {
	if r, ok := d.router.(*culvert); ok {
		r.joined = part
	}
}

// Spread has the router's data plane spread packets over workers, before Attach, if it is culvert.
func (d *insnRouter) Spread(cpus []int) {
	if r, ok := d.router.(*culvert); ok {
		r.workers = cpus
	}
}

// Attach makes the device's namespace a router with few routes.
func (d *insnRouter) Attach(ctx context.Context, p peer.Path) error {
	steps := []func() error{
		func() error { return addressRouter(p) },
		func() error { return p.In.Netns.Do(func() error { return setRouting(p) }) },
		func() (err error) { d.writer, err = newWriter(p.In.Netns, p.Out.Index); return err },
		func() error { return d.routes().install(ctx, d.writer, d.v6) },
		func() error { return d.prepare(ctx, p) },
		func() error { return d.router.Attach(ctx, p) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// prepare prepares the router. culvert checks whether the far end accepts redirected frames. The sink is not attached yet, so
// prepare makes the far end listen meanwhile.
func (d *insnRouter) prepare(ctx context.Context, p peer.Path) error {
	listening, err := load.Listen(p.Sink)
	if err != nil {
		return err
	}
	return errors.Join(d.router.Prepare(ctx, p), listening.Close())
}

// Frames makes as many frames as there are common ones, to up to insnDestinations destinations.
func (d *insnRouter) Frames(p peer.Path, common [][]byte) ([][]byte, error) {
	routes := d.routes()
	addrs, _ := destinations(*routes.of(d.v6), min(len(common), insnDestinations))
	frames := make([][]byte, len(common))
	for i := range frames {
		f, err := routedFrame(addrs[i%len(addrs)], p, d.size)
		if err != nil {
			return nil, err
		}
		frames[i] = f
	}
	return frames, nil
}

// SetTraffic makes the sink count only the frames, by their UDP ports, because a router also sends packets of its own.
func (d *insnRouter) SetTraffic(v *scenario.VethOptions) {
	ports := scionpkt.EthernetLen + scionpkt.IPv4Len
	if d.v6 {
		ports = scionpkt.EthernetLen + scionpkt.IPv6Len
	}
	v.Sink = load.SinkOptions{MinLen: d.size, MarkOffset: ports, Mark: sourcePort<<16 | load.DiscardPort}
}

// insnDestinations is the number of destinations. The routes of IPv4 have only 768 addresses.
const insnDestinations = 512

func (d *insnRouter) Losses() (map[string]uint64, error) { return d.router.Losses() }

// Program implements peer.SingleProgram.
func (d *insnRouter) Program() (*ebpf.Program, uint32) {
	switch r := d.router.(type) {
	case *culvert:
		return r.inst.Entry(), load.XDPRedirect
	case *programDevice:
		return r.prog, load.XDPRedirect
	default:
		return nil, load.XDPRedirect
	}
}

func (d *insnRouter) Detach() error {
	err := errors.Join(d.router.Detach(), d.router.Release())
	if d.writer != nil {
		err = errors.Join(err, d.writer.Close())
	}
	return err
}
