// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
)

// vlanIDs is LB_VLANS of bpf/lb/vlan.h.
const vlanIDs = 4096

// MaxVLANs is the largest number of VLANs that a VIP may name.
const MaxVLANs = 16

// NamedVLAN is a VLAN that the VIPs of an address name in the configuration. They are served there although the host has no
// device for the VLAN.
type NamedVLAN struct {
	Addr netip.Addr
	ID   uint16
}

func (v NamedVLAN) raw() bpfobj.PipelineLbNamedVlan {
	raw := bpfobj.PipelineLbNamedVlan{Id: uint32(v.ID)}
	raw.Addr.W = bpfobj.AddrWords(v.Addr)
	return raw
}

// SetNamedVLAN makes the programs serve the VIPs of an address on a VLAN.
func (p *Plane) SetNamedVLAN(v NamedVLAN) error {
	if err := p.inst.Map(bpfobj.PipelineMapLbNamedVlans).Put(v.raw(), uint8(1)); err != nil {
		return fmt.Errorf("writing VLAN %d of VIP %s of %s: %w", v.ID, v.Addr, p.Name(), err)
	}
	return nil
}

// DeleteNamedVLAN undoes SetNamedVLAN. It returns no error if there is none.
func (p *Plane) DeleteNamedVLAN(v NamedVLAN) error {
	if err := p.inst.Map(bpfobj.PipelineMapLbNamedVlans).Delete(v.raw()); err != nil && !bpfobj.NotExist(err) {
		return fmt.Errorf("deleting VLAN %d of VIP %s of %s: %w", v.ID, v.Addr, p.Name(), err)
	}
	return nil
}

// NamedVLANs returns the named VLANs in the data plane.
func (p *Plane) NamedVLANs() (map[NamedVLAN]bool, error) {
	var (
		key bpfobj.PipelineLbNamedVlan
		on  uint8
	)
	all := make(map[NamedVLAN]bool)
	it := p.inst.Map(bpfobj.PipelineMapLbNamedVlans).Iterate()
	for it.Next(&key, &on) {
		all[NamedVLAN{bpfobj.WordsAddr(key.Addr.W), uint16(key.Id)}] = true
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("listing the VLANs that VIPs of %s name: %w", p.Name(), err)
	}
	return all, nil
}

func copyNamedVLANs(_ *Part, from, to *ebpf.Map) error {
	var (
		key bpfobj.PipelineLbNamedVlan
		on  uint8
	)
	it := from.Iterate()
	for it.Next(&key, &on) {
		if err := to.Put(key, on); err != nil {
			return err
		}
	}
	return it.Err()
}

// FollowVLANs writes the VLANs that this host has on the interfaces into the data plane, and returns whether they have
// changed. A VLAN counts if it has an 802.1Q device that is up, on the interface or on the bridge that the interface is a
// port of. Interfaces are found by index, so that renaming one changes nothing.
func (p *Plane) FollowVLANs() (changed bool, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return false, fmt.Errorf("listing the VLANs of this host: %w", err)
	}
	return p.followVLANs(links)
}

func (p *Plane) followVLANs(links []netlink.Link) (changed bool, err error) {
	want := make([]uint32, p.inst.Map(bpfobj.PipelineMapLbVlans).MaxEntries())
	for name, port := range p.inst.PortIndexes() {
		first := p.inst.PortSlot(name) * vlanIDs
		if first+vlanIDs > len(want) {
			continue // cannot happen: the map has room for all slots
		}
		for id, dev := range vlansOn(links, port) {
			want[first+int(id)] = uint32(dev)
		}
	}
	return p.setVLANs(want)
}

// vlansOn returns the index of each VLAN's device on an interface, by VLAN ID.
func vlansOn(links []netlink.Link, port int) map[uint16]int {
	above := map[int]bool{port: true}
	for _, l := range links {
		if a := l.Attrs(); a.Index == port && a.MasterIndex != 0 {
			above[a.MasterIndex] = true
		}
	}
	devs := make(map[uint16]int)
	for _, l := range links {
		v, ok := l.(*netlink.Vlan)
		if ok && above[v.ParentIndex] && v.Flags&net.FlagUp != 0 && v.VlanProtocol == netlink.VLAN_PROTOCOL_8021Q {
			devs[uint16(v.VlanId)&(vlanIDs-1)] = v.Index
		}
	}
	return devs
}

// setVLANs writes the entries that differ. The index is slot of the interface * vlanIDs + VLAN ID, the value the index of
// the VLAN's device, 0 for none.
func (p *Plane) setVLANs(want []uint32) (changed bool, err error) {
	m := p.inst.Map(bpfobj.PipelineMapLbVlans)
	size := len(want) * int(unsafe.Sizeof(bpfobj.PipelineLbVlan{}))
	b, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return false, fmt.Errorf("mapping the VLANs of %s: %w", p.Name(), err)
	}
	has := unsafe.Slice((*bpfobj.PipelineLbVlan)(unsafe.Pointer(unsafe.SliceData(b))), len(want))
	for n, dev := range want {
		if has[n].Dev != dev {
			atomic.StoreUint32(&has[n].Dev, dev)
			changed = true
		}
	}
	return changed, unix.Munmap(b)
}
