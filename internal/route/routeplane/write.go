// SPDX-License-Identifier: Apache-2.0

package routeplane

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// Table4 returns the memory of the IPv4 mirror, in the layout of package lpm, nil without a mirror. It is valid until
// Close.
func (p *Plane) Table4() (root, blocks []uint32) { return p.root4, p.blocks4 }

// Table6 is Table4 for IPv6.
func (p *Plane) Table6() (root, blocks []uint32) { return p.root6, p.blocks6 }

// SetHop sets the next hop that a number in the mirror stands for. Programs see the old or the new one, never a mixture.
func (p *Plane) SetHop(number uint32, hop Hop) error {
	switch {
	case !p.writable:
		return errReadOnly
	case int(number) >= len(p.hops):
		return fmt.Errorf("next hop %d of %s: there are %d", number, p.inst.Name(), len(p.hops))
	}
	to := &p.hops[number]
	raw := bpfobj.PipelineRouteHop{Dev: uint32(hop.Dev), Action: uint8(hop.Action), Remember: bpfobj.Flag(hop.Remember), Hop: bpfobj.PipelineNextHop{
		Port: uint32(hop.Port), Mtu: hop.MTU, Vlan: hop.VLAN, Dmac: hop.DstMAC, Smac: hop.SrcMAC, LinearOnly: bpfobj.Flag(hop.LinearOnly),
	}}
	// This is a writer of bpf/core/seqcount.h. The loop leaves the first word out, because it consists of the
	// sequence count and of a field that the programs write.
	seq := to.Seq &^ 1 // the count is odd if a process died while writing
	atomic.StoreUint32(&to.Seq, seq+1)
	words := (*[unsafe.Sizeof(raw) / 8]uint64)(unsafe.Pointer(to))
	for n, w := range (*[unsafe.Sizeof(raw) / 8]uint64)(unsafe.Pointer(&raw))[1:] {
		atomic.StoreUint64(&words[1+n], w)
	}
	atomic.StoreUint32(&to.Seq, seq+2)
	return nil
}

// Hop returns the next hop that a number in the mirror stands for.
func (p *Plane) Hop(number uint32) (Hop, error) {
	var raw bpfobj.PipelineRouteHop
	m := p.inst.Map(bpfobj.PipelineMapRouteHops)
	for range 100 {
		if err := m.Lookup(number, &raw); err != nil {
			return Hop{}, fmt.Errorf("reading next hop %d of %s: %w", number, p.inst.Name(), err)
		}
		if raw.Seq&1 == 0 {
			break
		}
	}
	return Hop{
		Action: Action(raw.Action), Dev: int(raw.Dev), Port: int(raw.Hop.Port), VLAN: raw.Hop.Vlan,
		MTU: raw.Hop.Mtu, SrcMAC: raw.Hop.Smac, DstMAC: raw.Hop.Dmac, LinearOnly: raw.Hop.LinearOnly != 0,
		Remember: raw.Remember != 0,
	}, nil
}

// Touch makes the programs forget the kernel's choices for destinations of n slots of a family, and not remember any until
// Settle is called. A plane for reading only, or without a mirror, has nothing to forget.
func (p *Plane) Touch(is6 bool, first, n int) {
	slots := p.slots4
	if is6 {
		slots = p.slots6
	}
	if !p.writable || slots == nil {
		return
	}
	for i := first; i < first+n; i++ {
		// An odd counter says so already. Nobody has remembered anything under it.
		if now := atomic.LoadUint32(&slots[i]); now&1 == 0 {
			atomic.StoreUint32(&slots[i], now+1)
		}
	}
}

// Settle lets the programs remember choices for all slots again.
func (p *Plane) Settle() {
	if !p.writable {
		return
	}
	for _, slots := range [][]uint32{p.slots4, p.slots6} {
		for i := range slots {
			if now := atomic.LoadUint32(&slots[i]); now&1 != 0 {
				atomic.StoreUint32(&slots[i], now+1)
			}
		}
	}
}

// usedShift is ROUTE_USED_SHIFT of bpf/route/maps.h.
const usedShift = 30

// HopUsed returns when the programs last sent to a next hop, on CLOCK_MONOTONIC in steps of 2^30 ns; 0 means never.
func (p *Plane) HopUsed(number uint32) time.Duration {
	if int(number) >= len(p.hops) {
		return 0
	}
	return time.Duration(atomic.LoadUint32(&p.hops[number].Used)) << usedShift
}

func neighborKey(n Neighbor) bpfobj.PipelineRouteNeighbor {
	key := bpfobj.PipelineRouteNeighbor{Dev: uint32(n.Dev)}
	key.Addr.W = bpfobj.AddrWords(n.Addr)
	return key
}

// SetNeighbor assigns a next hop's number to a neighbor on a connected network.
func (p *Plane) SetNeighbor(n Neighbor, number uint32) error {
	if err := p.inst.Map(bpfobj.PipelineMapRouteNeighbors).Put(neighborKey(n), number); err != nil {
		return fmt.Errorf("writing neighbor %s of %s: %w", n.Addr, p.inst.Name(), err)
	}
	return nil
}

// DeleteNeighbor removes a neighbor. A missing one is no error.
func (p *Plane) DeleteNeighbor(n Neighbor) error {
	err := p.inst.Map(bpfobj.PipelineMapRouteNeighbors).Delete(neighborKey(n))
	if err != nil && !bpfobj.NotExist(err) {
		return fmt.Errorf("deleting neighbor %s of %s: %w", n.Addr, p.inst.Name(), err)
	}
	return nil
}

// NeighborHop returns the number of a neighbor's next hop, HopAsk if it has none.
func (p *Plane) NeighborHop(n Neighbor) uint32 {
	var number uint32
	if p.inst.Map(bpfobj.PipelineMapRouteNeighbors).Lookup(neighborKey(n), &number) != nil {
		return HopAsk
	}
	return number
}

// Flags of struct route_dev (bpf/core/port.h).
const (
	devForward4 = 1 << iota
	devForward6
	devStrict
	devLoose
	devRedirects
)

func (d Dev) raw(index int) bpfobj.PipelineRouteDev {
	raw := bpfobj.PipelineRouteDev{Index: uint32(index)}
	for n := range raw.Mac {
		raw.Mac[n] = bpfobj.Native.Uint16(d.MAC[2*n:])
	}
	for bit, on := range map[uint8]bool{
		devForward4: d.Forward4, devForward6: d.Forward6, devStrict: d.RPFilter == 1,
		devLoose: d.RPFilter == 2, devRedirects: d.Redirects,
	} {
		if on {
			raw.Flags |= bit
		}
	}
	return raw
}

// SetDev describes a device by which packets come in or leave. It does nothing if the device's interface does not carry
// the program.
func (p *Plane) SetDev(index int, dev Dev) error {
	err := p.setIn(index, dev)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil // the interface has gone, or is another of that name
	}
	if err != nil {
		return fmt.Errorf("writing device %d of %s: %w", index, p.inst.Name(), err)
	}
	way := bpfobj.PipelineRouteWay{Port: uint32(dev.Port), Vlan: dev.VLAN, Xmit: bpfobj.Flag(dev.Xmit), LinearOnly: bpfobj.Flag(dev.LinearOnly)}
	if err := p.inst.Map(bpfobj.PipelineMapRouteWays).Put(uint32(index), way); err != nil {
		return fmt.Errorf("writing the way out by device %d of %s: %w", index, p.inst.Name(), err)
	}
	return nil
}

// setIn writes what the programs need for packets that come in by a device.
func (p *Plane) setIn(index int, dev Dev) error {
	if dev.VLAN == 0 {
		return p.setPort(dev.Port, dev.raw(index))
	}
	if err := p.forgetVLAN(index); err != nil {
		return err
	}
	return p.inst.Map(bpfobj.PipelineMapRouteVlans).Put(bpfobj.PipelineRouteVlan{Port: uint32(dev.Port), Tag: uint32(dev.VLAN)}, dev.raw(index))
}

// setPort changes the IP router's fields of an interface's entry, and its MAC address.
func (p *Plane) setPort(index int, raw bpfobj.PipelineRouteDev) error {
	return p.inst.EditPort(index, func(port bpfobj.PipelinePort) ([]bpfobj.PipelinePort, error) {
		mac := port.Mac
		if raw.Mac != [3]uint16{} { // the former address is no longer this host's
			mac = raw.Mac
		}
		if port.Route == raw && port.Mac == mac {
			return nil, nil
		}
		port.Route, port.Mac = raw, mac
		return []bpfobj.PipelinePort{port}, nil
	})
}

// forgetVLAN removes the tag of a VLAN device, whichever it is.
func (p *Plane) forgetVLAN(index int) error {
	var (
		key  bpfobj.PipelineRouteVlan
		raw  bpfobj.PipelineRouteDev
		gone []bpfobj.PipelineRouteVlan
	)
	vlans := p.inst.Map(bpfobj.PipelineMapRouteVlans)
	it := vlans.Iterate()
	for it.Next(&key, &raw) {
		if raw.Index == uint32(index) {
			gone = append(gone, key)
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	for _, k := range gone {
		if err := vlans.Delete(k); err != nil && !bpfobj.NotExist(err) {
			return err
		}
	}
	return nil
}

// DeleteDev removes a device. A missing one is no error.
func (p *Plane) DeleteDev(index int) error {
	errs := []error{p.forgetVLAN(index), p.setPort(index, bpfobj.PipelineRouteDev{Index: uint32(index)})}
	errs = append(errs, p.inst.Map(bpfobj.PipelineMapRouteWays).Delete(uint32(index)))
	for _, err := range errs {
		if err != nil && !bpfobj.NotExist(err) {
			return fmt.Errorf("deleting device %d of %s: %w", index, p.inst.Name(), err)
		}
	}
	return nil
}

// ownBit returns the number of an address's bit in the filter route_state.own (bpf/core/bloom.h).
func ownBit(addr uint32) uint32 { return addr * 0x9e3779b1 >> 20 }

// SetOwn4 replaces the IPv4 addresses of this host.
func (p *Plane) SetOwn4(addrs []netip.Addr) error {
	if !p.writable {
		return errReadOnly
	}
	own := p.inst.Map(bpfobj.PipelineMapRouteOwn4)
	want := make(map[uint32]bool, len(addrs))
	var bits [len(p.state.Own.Bits)]uint64
	for _, a := range addrs {
		b := a.As4()
		word := bpfobj.Native.Uint32(b[:])
		want[word] = true
		bits[ownBit(word)>>6] |= 1 << (ownBit(word) & 63)
		if err := own.Put(word, uint32(1)); err != nil {
			return fmt.Errorf("writing address %s of %s: %w", a, p.inst.Name(), err)
		}
	}
	for n := range bits {
		atomic.StoreUint64(&p.state.Own.Bits[n], bits[n])
	}
	var key, value uint32
	var gone []uint32
	it := own.Iterate()
	for it.Next(&key, &value) {
		if !want[key] {
			gone = append(gone, key)
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("listing the addresses of %s: %w", p.inst.Name(), err)
	}
	for _, k := range gone {
		if err := own.Delete(k); err != nil && !bpfobj.NotExist(err) {
			return fmt.Errorf("deleting an address of %s: %w", p.inst.Name(), err)
		}
	}
	return nil
}

// SetPolicy replaces the host's settings that change how routes are chosen.
func (p *Plane) SetPolicy(policy Policy) error {
	if !p.writable {
		return errReadOnly
	}
	st := p.state
	st.Kernel4, st.Kernel6, st.Full4 = bpfobj.Flag(policy.Kernel4), bpfobj.Flag(policy.Kernel6), bpfobj.Flag(policy.FullCheck4)
	st.Hash4, st.Hash6 = policy.Hash4, policy.Hash6
	st.Mtu4, st.Mtu6 = policy.MTU4, policy.MTU6
	st.Rules4, st.Rules6 = bpfobj.Flag(policy.Rules4), bpfobj.Flag(policy.Rules6)
	return nil
}

// SetCurrent sets until when, on CLOCK_MONOTONIC, the programs may believe the mirror of IPv4 and of IPv6. Zero ends that
// at once.
func (p *Plane) SetCurrent(until4, until6 time.Duration) error {
	if !p.writable {
		return errReadOnly
	}
	atomic.StoreUint64(&p.state.Until4, uint64(until4))
	atomic.StoreUint64(&p.state.Until6, uint64(until6))
	return nil
}

// State is what the programs use besides tables and devices.
type State struct {
	// Until4 and Until6 are until when, on CLOCK_MONOTONIC, the programs may believe the mirror.
	Until4, Until6 time.Duration
	Policy         Policy
}

// ReadState returns the State that the programs use now.
func ReadState(inst *datapath.Instance) (State, error) {
	var st bpfobj.PipelineRouteState
	if err := inst.Map(bpfobj.PipelineMapRouteStates).Lookup(uint32(0), &st); err != nil {
		return State{}, fmt.Errorf("reading the IP router's state of %s: %w", inst.Name(), err)
	}
	return State{
		Until4: time.Duration(st.Until4),
		Until6: time.Duration(st.Until6),
		Policy: Policy{
			Kernel4: st.Kernel4 != 0, Kernel6: st.Kernel6 != 0, FullCheck4: st.Full4 != 0, Rules4: st.Rules4 != 0, Rules6: st.Rules6 != 0,
			Hash4: st.Hash4, Hash6: st.Hash6, MTU4: st.Mtu4, MTU6: st.Mtu6,
		},
	}, nil
}

// Devs returns the devices from which the programs take IP packets, by index.
func (p *Plane) Devs() (map[int]Dev, error) {
	devs := make(map[int]Dev)
	var (
		index uint32
		way   bpfobj.PipelineRouteWay
	)
	it := p.inst.Map(bpfobj.PipelineMapRouteWays).Iterate()
	for it.Next(&index, &way) {
		devs[int(index)] = Dev{Port: int(way.Port), VLAN: way.Vlan, Xmit: way.Xmit != 0, LinearOnly: way.LinearOnly != 0}
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("listing the devices of %s: %w", p.inst.Name(), err)
	}
	for index, dev := range devs {
		var raw bpfobj.PipelineRouteDev
		if dev.VLAN != 0 {
			key := bpfobj.PipelineRouteVlan{Port: uint32(dev.Port), Tag: uint32(dev.VLAN)}
			if err := p.inst.Map(bpfobj.PipelineMapRouteVlans).Lookup(key, &raw); err != nil {
				continue
			}
		} else {
			port, ok := p.inst.Port(index)
			if !ok {
				continue
			}
			raw = port.Route
		}
		dev.read(raw)
		devs[index] = dev
	}
	return devs, nil
}

func (d *Dev) read(raw bpfobj.PipelineRouteDev) {
	for n, w := range raw.Mac {
		bpfobj.Native.PutUint16(d.MAC[2*n:], w)
	}
	d.Forward4 = raw.Flags&devForward4 != 0
	d.Forward6 = raw.Flags&devForward6 != 0
	d.Redirects = raw.Flags&devRedirects != 0
	switch {
	case raw.Flags&devStrict != 0:
		d.RPFilter = 1
	case raw.Flags&devLoose != 0:
		d.RPFilter = 2
	}
}
