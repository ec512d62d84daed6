// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
)

// routeMemory is what this process shares with the programs: the contents of maps that can be mapped.
type routeMemory struct {
	mapped         [][]byte
	root4, blocks4 []uint32
	root6, blocks6 []uint32
	hops           []bpfobj.PipelineRouteHop
	state          *bpfobj.PipelineRouteState
}

// The first levels: 2^24 entries for IPv4, 2^16 for IPv6, 256 to a block.
const (
	routeRoots4 = 1 << 16
	routeRoots6 = 1 << 8
)

// maxRouteBlocks is what a block number in an entry has room for.
const maxRouteBlocks = 1 << 23

func (o *RouteOptions) validate() error {
	for _, n := range []int{o.Blocks4, o.Blocks6} {
		if n < 0 || n > maxRouteBlocks {
			return fmt.Errorf("%d blocks for the mirrored table: use 1 to %d, or 0 for the default", n, maxRouteBlocks)
		}
	}
	return nil
}

func orDefault(n, otherwise int) uint32 {
	if n == 0 {
		n = otherwise
	}
	return uint32(n)
}

// setRoute sizes the programs for the IP router.
func setRoute(spec *ebpf.CollectionSpec, o *RouteOptions) error {
	if o == nil {
		return nil
	}
	for name, value := range map[string]any{
		bpfobj.PipelineVarRouteOn:       true,
		bpfobj.PipelineVarRouteMirror:   !o.NoMirror,
		bpfobj.PipelineVarRouteTrusting: o.Trusting,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	spec.Maps[bpfobj.PipelineMapRouteHops].MaxEntries = RouteHops
	spec.Maps[bpfobj.PipelineMapRouteNeighbors].MaxEntries = RouteNeighbours
	if o.NoMirror {
		return nil
	}
	spec.Maps[bpfobj.PipelineMapRouteRoot4].MaxEntries = routeRoots4
	spec.Maps[bpfobj.PipelineMapRouteRoot6].MaxEntries = routeRoots6
	spec.Maps[bpfobj.PipelineMapRouteBlocks4].MaxEntries = orDefault(o.Blocks4, RouteBlocks4)
	spec.Maps[bpfobj.PipelineMapRouteBlocks6].MaxEntries = orDefault(o.Blocks6, RouteBlocks6)
	return nil
}

// openRoute maps the memory that the IP router's maps consist of, for this process to write.
func (i *Instance) openRoute() error {
	if i.meta.Route == nil {
		return nil
	}
	if err := i.mapRoute(unix.PROT_READ | unix.PROT_WRITE); err != nil {
		return err
	}
	for number, hop := range map[uint32]RouteAction{
		RouteHopNone: RouteNone, RouteHopLocal: RouteLocal, RouteHopUnreachable: RouteUnreachable,
		RouteHopProhibit: RouteProhibit, RouteHopBlackhole: RouteBlackhole, RouteHopElsewhere: RouteElsewhere,
	} {
		if err := i.SetRouteHop(number, RouteHop{Action: hop}); err != nil {
			return err
		}
	}
	return nil
}

// ViewRoute maps the IP router's memory of an instance that another process serves, for RouteTable4,
// RouteTable6, RouteState and RouteHopUsed; nothing of it can be written. It is gone with Close.
func (i *Instance) ViewRoute() error {
	switch {
	case i.meta.Route == nil:
		return fmt.Errorf("%s routes no IP packets: its configuration has no [route] table", i.Name())
	case i.route.state != nil:
		return nil
	}
	return i.mapRoute(unix.PROT_READ)
}

func (i *Instance) mapRoute(prot int) (err error) {
	if i.route.hops, err = mapArray[bpfobj.PipelineRouteHop](i, bpfobj.PipelineMapRouteHops, prot); err != nil {
		return err
	}
	states, err := mapArray[bpfobj.PipelineRouteState](i, bpfobj.PipelineMapRouteStates, prot)
	if err != nil {
		return err
	}
	i.route.state = &states[0]
	if i.meta.Route.NoMirror {
		return nil
	}
	for name, to := range map[string]*[]uint32{
		bpfobj.PipelineMapRouteRoot4: &i.route.root4, bpfobj.PipelineMapRouteBlocks4: &i.route.blocks4,
		bpfobj.PipelineMapRouteRoot6: &i.route.root6, bpfobj.PipelineMapRouteBlocks6: &i.route.blocks6,
	} {
		blocks, err := mapArray[[256]uint32](i, name, prot)
		if err != nil {
			return err
		}
		*to = unsafe.Slice(&blocks[0][0], 256*len(blocks))
	}
	return nil
}

// mapArray maps the contents of an array into this process.
func mapArray[T any](i *Instance, name string, prot int) ([]T, error) {
	m := i.maps[name]
	var value T
	// Values stand at multiples of 8 bytes; those here are such sizes (TestRouteLayout).
	size := int(unsafe.Sizeof(value)) * int(m.MaxEntries())
	page := unix.Getpagesize()
	b, err := unix.Mmap(m.FD(), 0, (size+page-1)/page*page, prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping map %s of %s: %w", name, i.Name(), err)
	}
	i.route.mapped = append(i.route.mapped, b)
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), m.MaxEntries()), nil
}

func (r *routeMemory) unmap() {
	for _, b := range r.mapped {
		_ = unix.Munmap(b)
	}
	*r = routeMemory{}
}

// Route returns the options of the IP router, nil if it is off.
func (i *Instance) Route() *RouteOptions { return i.meta.Route }

// RouteMemory returns how many bytes the maps of the mirrored table take.
func (i *Instance) RouteMemory() (n uint64) {
	for _, name := range []string{
		bpfobj.PipelineMapRouteRoot4, bpfobj.PipelineMapRouteBlocks4, bpfobj.PipelineMapRouteRoot6, bpfobj.PipelineMapRouteBlocks6, bpfobj.PipelineMapRouteHops,
	} {
		if m := i.maps[name]; m != nil {
			n += uint64(m.ValueSize()) * uint64(m.MaxEntries())
		}
	}
	return n
}
