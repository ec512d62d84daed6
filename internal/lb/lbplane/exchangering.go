// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
)

// mappedRing is the ring of a VIP, in the memory of the kernel. Rings are replaced as a whole, so one never changes.
type mappedRing struct {
	vip    VIP
	proto  uint8
	ids    []BackendID // nil while the VIP has no backend for new flows
	mapped []byte
}

// ReadRings looks at the VIPs and rings again. Call it after a change of them, once Follow has returned true.
func (x *Exchange) ReadRings() error {
	if err := x.readRings(); err != nil {
		return fmt.Errorf("looking at the rings of %s: %w", x.inst.Name(), err)
	}
	return nil
}

func (x *Exchange) readRings() error {
	x.closeRings()
	vips, err := x.Plane().VIPs()
	if err != nil {
		return err
	}
	for key, v := range vips {
		if v.ServerID > 0 {
			continue
		}
		r := mappedRing{vip: v, proto: key.Proto}
		if !v.Empty {
			if err := r.open(x); err != nil {
				return err
			}
		}
		x.rings[v.Number] = r
	}
	return nil
}

// open maps the ring, if there is one.
func (r *mappedRing) open(x *Exchange) error {
	var m *ebpf.Map
	err := x.now.Map(bpfobj.PipelineMapLbRings).Lookup(r.vip.Number, &m)
	if bpfobj.NotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer m.Close() // the mapping keeps the ring
	size, page := int(m.MaxEntries())*linePositions*4, unix.Getpagesize()
	if r.mapped, err = unix.Mmap(m.FD(), 0, (size+page-1)/page*page, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return err
	}
	if n := x.flows.options.RingSize; n*4 <= size {
		r.ids = unsafe.Slice((*BackendID)(unsafe.Pointer(unsafe.SliceData(r.mapped))), n)
	}
	return nil
}

func (x *Exchange) closeRings() {
	for _, r := range x.rings {
		if r.mapped != nil {
			_ = unix.Munmap(r.mapped)
		}
	}
	x.rings = make(map[uint32]mappedRing)
}
