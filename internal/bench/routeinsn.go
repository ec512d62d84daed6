// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"

	"github.com/cilium/ebpf"

	"culvert/internal/scion/scionpkt"
)

// insnRoute is a router alone on a path, with few routes, whose instructions are to be counted.
type insnRoute struct {
	v6 bool
	// router is what forwards.
	router Standing
	writer *routeWriter
	// size is the length of the frames in bytes.
	size int
}

// insnRoutes are the routers in both families: those that are programs, which are counted by themselves, and all of
// them from end to end.
func insnRoutes() (programs, paths []candidate) {
	add := func(to *[]candidate, name string, router func() Standing) {
		for _, v6 := range []bool{false, true} {
			family := "4"
			if v6 {
				family = "6"
			}
			*to = append(*to, candidate{name: name + family, device: func(Terms) Device {
				return &insnRoute{v6: v6, router: router(), size: frameSize}
			}})
		}
	}
	fib := func() Standing { return &routeProgram{program: benchProgBenchFib} }
	asking := func() Standing { return &routeCulvert{noMirror: true} }
	mirror := func() Standing { return &routeCulvert{unfed: true} }
	add(&programs, "fib", fib)
	add(&programs, "route-fib", asking)
	add(&programs, "route-mirror", mirror)
	add(&paths, "route-linux", func() Standing { return &routeProgram{program: benchProgBenchEmpty} })
	add(&paths, "fib", fib)
	add(&paths, "route-fib", asking)
	add(&paths, "route-mirror", mirror)
	return programs, paths
}

// Attach makes the path's namespace a router.
func (d *insnRoute) Attach(ctx context.Context, p Path) error {
	steps := []func() error{
		func() error { return addressRouter(p) },
		func() error { return p.In.Space.Do(func() error { return setRouting(p) }) },
		func() (err error) { d.writer, err = newRouteWriter(p.In.Space, p.Out.Index); return err },
		func() error { return fewRoutes().install(ctx, d.writer, d.v6) },
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

// prepare has the router ready. culvert looks whether the sink takes frames, which is not attached yet.
func (d *insnRoute) prepare(ctx context.Context, p Path) error {
	listening, err := Listen(p.Sink)
	if err != nil {
		return err
	}
	return errors.Join(d.router.Prepare(ctx, p), listening.Close())
}

// Frames go to as many destinations as there are common frames.
func (d *insnRoute) Frames(p Path, common [][]byte) ([][]byte, error) {
	few := fewRoutes()
	// Three networks of 256 addresses, or of many more.
	addrs, _ := destinations(*few.of(d.v6), min(len(common), insnDestinations))
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

// shape has the frames alone counted, by their UDP ports: a router sends packets of its own now and then.
func (d *insnRoute) shape(v *vethOptions) {
	ports := scionpkt.EthernetLen + scionpkt.IPv4Len
	if d.v6 {
		ports = scionpkt.EthernetLen + scionpkt.IPv6Len
	}
	v.Sink = SinkOptions{MinLen: d.size, MarkOffset: ports, Mark: routeSourcePort<<16 | discardPort}
}

// insnDestinations is how many destinations there are: the routes have hardly more addresses.
const insnDestinations = 512

func (d *insnRoute) Losses() (map[string]uint64, error) { return d.router.Losses() }

// Program is what is on In, which redirects.
func (d *insnRoute) Program() (*ebpf.Program, uint32) {
	switch r := d.router.(type) {
	case *routeCulvert:
		return r.inst.Program(), xdpRedirect
	case *routeProgram:
		return r.prog, xdpRedirect
	default:
		return nil, xdpRedirect
	}
}

func (d *insnRoute) Detach() error {
	err := errors.Join(d.router.Detach(), d.router.Release())
	if d.writer != nil {
		err = errors.Join(err, d.writer.Close())
	}
	return err
}
