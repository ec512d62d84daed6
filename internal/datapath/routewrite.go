// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
)

// RouteTable4 and RouteTable6 return the memory of the mirror, nil without one. It is gone with Close.
func (i *Instance) RouteTable4() (root, blocks []uint32) { return i.route.root4, i.route.blocks4 }

// RouteTable6 is RouteTable4 for IPv6.
func (i *Instance) RouteTable6() (root, blocks []uint32) { return i.route.root6, i.route.blocks6 }

// errNoRoute is for calls that need the IP router's memory, which only the process that loaded it has.
var errNoRoute = errors.New("the IP router is off, or another process keeps it")

// SetRouteHop says what a number in the mirror stands for. Programs see the old or the new meaning.
func (i *Instance) SetRouteHop(number uint32, hop RouteHop) error {
	if int(number) >= len(i.route.hops) {
		return fmt.Errorf("next hop %d of %s: there are %d: %w", number, i.Name(), len(i.route.hops), errNoRoute)
	}
	raw := &i.route.hops[number]
	seq := raw.Seq &^ 1 // odd after a process that died while writing
	atomic.StoreUint32(&raw.Seq, seq+1)
	raw.Action = uint8(hop.Action)
	raw.Dev, raw.Port = uint32(hop.Dev), uint32(hop.Port)
	raw.Mtu, raw.Vlan = hop.MTU, hop.VLAN
	raw.Dmac, raw.Smac = hop.DstMAC, hop.SrcMAC
	raw.LinearOnly = bpfobj.Flag(hop.LinearOnly)
	atomic.StoreUint32(&raw.Seq, seq+2)
	return nil
}

// RouteHop returns what a number in the mirror stands for.
func (i *Instance) RouteHop(number uint32) (RouteHop, error) {
	var raw bpfobj.PipelineRouteHop
	m := i.maps[bpfobj.PipelineMapRouteHops]
	if m == nil {
		return RouteHop{}, errNoRoute
	}
	for range 100 {
		if err := m.Lookup(number, &raw); err != nil {
			return RouteHop{}, fmt.Errorf("reading next hop %d of %s: %w", number, i.Name(), err)
		}
		if raw.Seq&1 == 0 {
			break
		}
	}
	return RouteHop{
		Action: RouteAction(raw.Action), Dev: int(raw.Dev), Port: int(raw.Port), VLAN: raw.Vlan, MTU: raw.Mtu,
		SrcMAC: raw.Smac, DstMAC: raw.Dmac, LinearOnly: raw.LinearOnly != 0,
	}, nil
}

// routeUsedShift is ROUTE_USED_SHIFT of bpf/route/maps.h.
const routeUsedShift = 30

// RouteHopUsed tells when the program last sent to a next hop, on CLOCK_MONOTONIC; 0 for never.
func (i *Instance) RouteHopUsed(number uint32) time.Duration {
	if int(number) >= len(i.route.hops) {
		return 0
	}
	return time.Duration(atomic.LoadUint32(&i.route.hops[number].Used)) << routeUsedShift
}

func neighbourKey(n RouteNeighbour) bpfobj.PipelineRouteNeighbor {
	key := bpfobj.PipelineRouteNeighbor{Dev: uint32(n.Dev)}
	key.Addr.W = bpfobj.AddrWords(n.Addr)
	return key
}

// SetRouteNeighbour gives a neighbour on a connected network its next hop's number.
func (i *Instance) SetRouteNeighbour(n RouteNeighbour, number uint32) error {
	if err := i.maps[bpfobj.PipelineMapRouteNeighbors].Put(neighbourKey(n), number); err != nil {
		return fmt.Errorf("writing neighbour %s of %s: %w", n.Addr, i.Name(), err)
	}
	return nil
}

// DeleteRouteNeighbour is no error if there is none.
func (i *Instance) DeleteRouteNeighbour(n RouteNeighbour) error {
	err := i.maps[bpfobj.PipelineMapRouteNeighbors].Delete(neighbourKey(n))
	if err != nil && !bpfobj.NotExist(err) {
		return fmt.Errorf("deleting neighbour %s of %s: %w", n.Addr, i.Name(), err)
	}
	return nil
}

// RouteNeighbour returns the number of a neighbour's next hop, RouteHopAsk if it has none.
func (i *Instance) RouteNeighbour(n RouteNeighbour) uint32 {
	var number uint32
	if i.maps[bpfobj.PipelineMapRouteNeighbors].Lookup(neighbourKey(n), &number) != nil {
		return RouteHopAsk
	}
	return number
}

// Flags of struct route_dev (bpf/core/port.h).
const (
	routeDevForward4 = 1 << iota
	routeDevForward6
	routeDevStrict
	routeDevLoose
	routeDevRedirects
)

func (d RouteDev) raw(index int) bpfobj.PipelineRouteDev {
	raw := bpfobj.PipelineRouteDev{Index: uint32(index)}
	for n := range raw.Mac {
		raw.Mac[n] = bpfobj.Native.Uint16(d.MAC[2*n:])
	}
	for bit, on := range map[uint8]bool{
		routeDevForward4: d.Forward4, routeDevForward6: d.Forward6, routeDevStrict: d.RPFilter == 1,
		routeDevLoose: d.RPFilter == 2, routeDevRedirects: d.Redirects,
	} {
		if on {
			raw.Flags |= bit
		}
	}
	return raw
}

// SetRouteDev describes a device that packets come in by or leave by. Nothing happens to those whose interface does
// not carry the program.
func (i *Instance) SetRouteDev(index int, dev RouteDev) error {
	err := i.setRouteIn(index, dev)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil // the interface has gone, or is another of that name
	}
	if err != nil {
		return fmt.Errorf("writing device %d of %s: %w", index, i.Name(), err)
	}
	way := bpfobj.PipelineRouteWay{Port: uint32(dev.Port), Vlan: dev.VLAN, Xmit: bpfobj.Flag(dev.Xmit), LinearOnly: bpfobj.Flag(dev.LinearOnly)}
	if err := i.maps[bpfobj.PipelineMapRouteWays].Put(uint32(index), way); err != nil {
		return fmt.Errorf("writing the way out by device %d of %s: %w", index, i.Name(), err)
	}
	return nil
}

func (i *Instance) setRouteIn(index int, dev RouteDev) error {
	if dev.VLAN == 0 {
		return i.setPortRoute(dev.Port, dev.raw(index))
	}
	if err := i.forgetVLAN(index); err != nil {
		return err
	}
	return i.maps[bpfobj.PipelineMapRouteVlans].Put(bpfobj.PipelineRouteVlan{Port: uint32(dev.Port), Tag: uint32(dev.VLAN)}, dev.raw(index))
}

// setPortRoute changes what the programs know of an interface for the IP router alone.
func (i *Instance) setPortRoute(index int, raw bpfobj.PipelineRouteDev) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	var port bpfobj.PipelinePort
	if err := i.maps[bpfobj.PipelineMapPorts].Lookup(uint32(index), &port); err != nil || port.Slot == 0 {
		return fmt.Errorf("it does not carry the program: %w", ebpf.ErrKeyNotExist)
	}
	mac := port.Mac
	if raw.Mac != [3]uint16{} { // frames to the device's former address are nobody's
		mac = raw.Mac
	}
	if port.Route == raw && port.Mac == mac {
		return nil
	}
	port.Route, port.Mac = raw, mac
	return i.maps[bpfobj.PipelineMapPorts].Put(uint32(index), port)
}

// forgetVLAN takes the tag of a VLAN device out, whatever tag that is.
func (i *Instance) forgetVLAN(index int) error {
	var (
		key  bpfobj.PipelineRouteVlan
		raw  bpfobj.PipelineRouteDev
		gone []bpfobj.PipelineRouteVlan
	)
	vlans := i.maps[bpfobj.PipelineMapRouteVlans]
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

// DeleteRouteDev is no error if there is none.
func (i *Instance) DeleteRouteDev(index int) error {
	errs := []error{i.forgetVLAN(index), i.setPortRoute(index, bpfobj.PipelineRouteDev{Index: uint32(index)})}
	errs = append(errs, i.maps[bpfobj.PipelineMapRouteWays].Delete(uint32(index)))
	for _, err := range errs {
		if err != nil && !bpfobj.NotExist(err) {
			return fmt.Errorf("deleting device %d of %s: %w", index, i.Name(), err)
		}
	}
	return nil
}

// ownBit is the bit of an address in route_state.own (bpf/core/bloom.h).
func ownBit(addr uint32) uint32 { return addr * 0x9e3779b1 >> 20 }

// SetRouteOwn4 gives all IPv4 addresses of this host.
func (i *Instance) SetRouteOwn4(addrs []netip.Addr) error {
	if i.route.state == nil {
		return errNoRoute
	}
	own := i.maps[bpfobj.PipelineMapRouteOwn4]
	want := make(map[uint32]bool, len(addrs))
	var bits [len(i.route.state.Own.Bits)]uint64
	for _, a := range addrs {
		b := a.As4()
		word := bpfobj.Native.Uint32(b[:])
		want[word] = true
		bits[ownBit(word)>>6] |= 1 << (ownBit(word) & 63)
		if err := own.Put(word, uint32(1)); err != nil {
			return fmt.Errorf("writing address %s of %s: %w", a, i.Name(), err)
		}
	}
	for n := range bits {
		atomic.StoreUint64(&i.route.state.Own.Bits[n], bits[n])
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
		return fmt.Errorf("listing the addresses of %s: %w", i.Name(), err)
	}
	for _, k := range gone {
		if err := own.Delete(k); err != nil && !bpfobj.NotExist(err) {
			return fmt.Errorf("deleting an address of %s: %w", i.Name(), err)
		}
	}
	return nil
}

// SetRoutePolicy says what the host has set that changes how routes are chosen.
func (i *Instance) SetRoutePolicy(p RoutePolicy) error {
	st := i.route.state
	if st == nil {
		return errNoRoute
	}
	st.Kernel4, st.Kernel6, st.Full4 = bpfobj.Flag(p.Kernel4), bpfobj.Flag(p.Kernel6), bpfobj.Flag(p.FullCheck4)
	st.Hash4, st.Hash6 = p.Hash4, p.Hash6
	st.Mtu4, st.Mtu6 = p.MTU4, p.MTU6
	st.Rules4, st.Rules6 = bpfobj.Flag(p.Rules4), bpfobj.Flag(p.Rules6)
	return nil
}

// SetRouteCurrent says until when, on CLOCK_MONOTONIC, the programs may believe the mirror.
func (i *Instance) SetRouteCurrent(until4, until6 time.Duration) error {
	st := i.route.state
	if st == nil {
		return errNoRoute
	}
	atomic.StoreUint64(&st.Until4, uint64(until4))
	atomic.StoreUint64(&st.Until6, uint64(until6))
	return nil
}

// RouteState is what programs go by beside tables and devices.
type RouteState struct {
	// Until4 and Until6 are until when, on CLOCK_MONOTONIC, the mirror may be believed.
	Until4, Until6 time.Duration
	Policy         RoutePolicy
}

// RouteState returns what the programs go by now. It needs no ViewRoute.
func (i *Instance) RouteState() (RouteState, error) {
	st := i.route.state
	if st == nil {
		m := i.maps[bpfobj.PipelineMapRouteStates]
		if m == nil || i.meta.Route == nil {
			return RouteState{}, errNoRoute
		}
		st = new(bpfobj.PipelineRouteState)
		if err := m.Lookup(uint32(0), st); err != nil {
			return RouteState{}, fmt.Errorf("reading the IP router's state of %s: %w", i.Name(), err)
		}
	}
	return RouteState{
		Until4: time.Duration(atomic.LoadUint64(&st.Until4)),
		Until6: time.Duration(atomic.LoadUint64(&st.Until6)),
		Policy: RoutePolicy{
			Kernel4: st.Kernel4 != 0, Kernel6: st.Kernel6 != 0, FullCheck4: st.Full4 != 0, Rules4: st.Rules4 != 0, Rules6: st.Rules6 != 0,
			Hash4: st.Hash4, Hash6: st.Hash6, MTU4: st.Mtu4, MTU6: st.Mtu6,
		},
	}, nil
}

// RouteDevs returns the devices that the programs take IP packets from, by index.
func (i *Instance) RouteDevs() (map[int]RouteDev, error) {
	devs := make(map[int]RouteDev)
	var (
		index uint32
		way   bpfobj.PipelineRouteWay
	)
	it := i.maps[bpfobj.PipelineMapRouteWays].Iterate()
	for it.Next(&index, &way) {
		devs[int(index)] = RouteDev{Port: int(way.Port), VLAN: way.Vlan, Xmit: way.Xmit != 0, LinearOnly: way.LinearOnly != 0}
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("listing the devices of %s: %w", i.Name(), err)
	}
	for index, dev := range devs {
		var raw bpfobj.PipelineRouteDev
		if dev.VLAN != 0 {
			key := bpfobj.PipelineRouteVlan{Port: uint32(dev.Port), Tag: uint32(dev.VLAN)}
			if err := i.maps[bpfobj.PipelineMapRouteVlans].Lookup(key, &raw); err != nil {
				continue
			}
		} else {
			var port bpfobj.PipelinePort
			if err := i.maps[bpfobj.PipelineMapPorts].Lookup(uint32(index), &port); err != nil {
				continue
			}
			raw = port.Route
		}
		dev.read(raw)
		devs[index] = dev
	}
	return devs, nil
}

func (d *RouteDev) read(raw bpfobj.PipelineRouteDev) {
	for n, w := range raw.Mac {
		bpfobj.Native.PutUint16(d.MAC[2*n:], w)
	}
	d.Forward4 = raw.Flags&routeDevForward4 != 0
	d.Forward6 = raw.Flags&routeDevForward6 != 0
	d.Redirects = raw.Flags&routeDevRedirects != 0
	switch {
	case raw.Flags&routeDevStrict != 0:
		d.RPFilter = 1
	case raw.Flags&routeDevLoose != 0:
		d.RPFilter = 2
	}
}
