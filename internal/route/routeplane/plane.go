// SPDX-License-Identifier: Apache-2.0

package routeplane

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// Plane is the IP router of an instance. Maps that can be memory-mapped are mapped into this process, which shares their
// contents with the programs. Close it before the instance.
type Plane struct {
	inst     *datapath.Instance
	writable bool

	mapped         [][]byte
	root4, blocks4 []uint32
	root6, blocks6 []uint32
	slots4, slots6 []uint32
	hops           []bpfobj.PipelineRouteHop
	state          *bpfobj.PipelineRouteState
}

// errReadOnly is the error of writes to a Plane from View.
var errReadOnly = errors.New("the IP router is open for reading only")

// Open opens the IP router of an instance for reading and writing. Only the process that serves it may write.
func Open(inst *datapath.Instance) (*Plane, error) {
	return open(inst, unix.PROT_READ|unix.PROT_WRITE)
}

// View opens the IP router of an instance for reading. Writes return an error.
func View(inst *datapath.Instance) (*Plane, error) { return open(inst, unix.PROT_READ) }

func open(inst *datapath.Instance, prot int) (*Plane, error) {
	o := OptionsOf(inst)
	if o == nil {
		return nil, fmt.Errorf("%s routes no IP packets: its configuration has no [route] table", inst.Name())
	}
	p := &Plane{inst: inst, writable: prot&unix.PROT_WRITE != 0}
	if err := p.mapAll(o, prot); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close unmaps the memory, including that which Table4 and Table6 have returned.
func (p *Plane) Close() {
	for _, b := range p.mapped {
		_ = unix.Munmap(b)
	}
	*p = Plane{inst: p.inst}
}

// Attached names the interfaces that carry the program now.
func (p *Plane) Attached() []string { return p.inst.Attached() }

// AttachedIndexes returns the indexes of the interfaces that carry the program now.
func (p *Plane) AttachedIndexes() []int { return p.inst.AttachedIndexes() }

func (p *Plane) mapAll(o *Options, prot int) (err error) {
	if p.hops, err = mapArray[bpfobj.PipelineRouteHop](p, bpfobj.PipelineMapRouteHops, prot); err != nil {
		return err
	}
	states, err := mapArray[bpfobj.PipelineRouteState](p, bpfobj.PipelineMapRouteStates, prot)
	if err != nil {
		return err
	}
	p.state = &states[0]
	if o.NoMirror {
		return nil
	}
	for name, to := range map[string]*[]uint32{
		bpfobj.PipelineMapRouteRoot4: &p.root4, bpfobj.PipelineMapRouteBlocks4: &p.blocks4,
		bpfobj.PipelineMapRouteRoot6: &p.root6, bpfobj.PipelineMapRouteBlocks6: &p.blocks6,
		bpfobj.PipelineMapRouteSlots4: &p.slots4, bpfobj.PipelineMapRouteSlots6: &p.slots6,
	} {
		blocks, err := mapArray[[256]uint32](p, name, prot)
		if err != nil {
			return err
		}
		*to = unsafe.Slice(&blocks[0][0], 256*len(blocks))
	}
	return nil
}

// mapArray maps the contents of an array into this process.
func mapArray[T any](p *Plane, name string, prot int) ([]T, error) {
	m := p.inst.Map(name)
	var value T
	// The kernel aligns values to 8 bytes. The sizes of these are multiples of 8 (TestRouteLayout).
	size := int(unsafe.Sizeof(value)) * int(m.MaxEntries())
	page := unix.Getpagesize()
	b, err := unix.Mmap(m.FD(), 0, (size+page-1)/page*page, prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping map %s of %s: %w", name, p.inst.Name(), err)
	}
	p.mapped = append(p.mapped, b)
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), m.MaxEntries()), nil
}

// Memory returns the size of the mirror's maps in bytes.
func Memory(inst *datapath.Instance) (n uint64) {
	for _, name := range []string{
		bpfobj.PipelineMapRouteRoot4, bpfobj.PipelineMapRouteBlocks4, bpfobj.PipelineMapRouteRoot6, bpfobj.PipelineMapRouteBlocks6, bpfobj.PipelineMapRouteHops,
		bpfobj.PipelineMapRouteChoices, bpfobj.PipelineMapRouteSlots4, bpfobj.PipelineMapRouteSlots6,
	} {
		if m := inst.Map(name); m != nil {
			n += uint64(m.ValueSize()) * uint64(m.MaxEntries())
		}
	}
	return n
}
