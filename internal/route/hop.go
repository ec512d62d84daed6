// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"culvert/internal/host/neigh"
	"culvert/internal/route/routeplane"
)

// gatewayKey names a gateway by device and address.
type gatewayKey = neigh.Key

// nexthopObject is a next hop that routes refer to by its number.
type nexthopObject struct {
	dev       int
	gateway   netip.Addr
	blackhole bool
	// odd marks groups and others that the mirror cannot follow.
	odd  bool
	dump uint64
}

// handleNexthop takes in RTM_NEWNEXTHOP and RTM_DELNEXTHOP.
func (f *feed) handleNexthop(m message, told bool) {
	// struct nhmsg: family, scope, protocol, reserved, flags.
	const sizeofNhMsg = 8
	const nhaFDB = 11 // NHA_FDB
	if len(m.data) < sizeofNhMsg {
		return
	}
	id, object := uint32(0), nexthopObject{dump: f.dump.serial}
	// A next hop that cannot be used for now may be dead; the kernel falls back to other routes.
	object.odd = binary.NativeEndian.Uint32(m.data[4:])&unix.RTNH_F_DEAD != 0
	for b := m.data[sizeofNhMsg:]; ; {
		kind, value, rest, more := nextAttr(b)
		if !more {
			break
		}
		b = rest
		switch kind {
		case unix.NHA_ID:
			id = u32(value)
		case unix.NHA_OIF:
			object.dev = int(u32(value))
		case unix.NHA_GATEWAY:
			object.gateway, _ = netip.AddrFromSlice(value)
		case unix.NHA_BLACKHOLE:
			object.blackhole = true
		case unix.NHA_GROUP, unix.NHA_GROUP_TYPE, unix.NHA_ENCAP, unix.NHA_ENCAP_TYPE, nhaFDB:
			object.odd = true
		}
	}
	key := touchKey{kind: unix.RTM_NEWNEXTHOP, number: id}
	if !f.fresh(key, told) {
		return
	}
	_, known := f.nexthops[id]
	if m.kind == unix.RTM_DELNEXTHOP {
		// The kernel removes the routes with it without a word.
		delete(f.nexthops, id)
		if f.condemn(func(one *descriptor) bool { return one.nexthop == id }) {
			f.wantDump()
		}
		return
	}
	if before := f.nexthops[id]; known {
		before.dump = object.dump
		if before == object {
			f.nexthops[id] = object
			return
		}
	}
	f.nexthops[id] = object
	f.descs.each(func(at uint32, one *descriptor) {
		if one.nexthop == id {
			f.refresh(at)
		}
	})
}

// keyOf gives the next hop of a route.
func (f *feed) keyOf(m *routeMessage) descKey {
	ask := descKey{}
	switch {
	case m.multi:
		return descKey{is6: m.is6, dev: severalDevices}
	case m.odd || m.dead:
		return descKey{is6: m.is6, dev: m.dev}
	}
	if m.is6 && m.prefix.Bits() >= 8 && m.prefix.Addr().IsMulticast() {
		// One route for each device, and none is for forwarding.
		return descKey{action: routeplane.Local, is6: m.is6, dev: m.dev}
	}
	switch m.kind {
	case unix.RTN_LOCAL, unix.RTN_BROADCAST, unix.RTN_ANYCAST, unix.RTN_MULTICAST:
		return descKey{action: routeplane.Local, is6: m.is6, dev: m.dev}
	case unix.RTN_UNREACHABLE:
		return descKey{action: routeplane.Unreachable, is6: m.is6, dev: m.dev}
	case unix.RTN_PROHIBIT:
		return descKey{action: routeplane.Prohibit, is6: m.is6, dev: m.dev}
	case unix.RTN_BLACKHOLE:
		if m.nexthop == 0 {
			return descKey{action: routeplane.Blackhole, is6: m.is6, dev: m.dev}
		}
		return descKey{is6: m.is6, nexthop: m.nexthop, mtu: m.mtu}
	case unix.RTN_UNICAST:
	default:
		return ask
	}
	switch {
	case m.prefix.Addr().IsLinkLocalUnicast() && m.is6:
		// Which one depends on the device.
		return ask
	case m.nexthop != 0:
		return descKey{is6: m.is6, nexthop: m.nexthop, mtu: m.mtu}
	case m.dev == 0:
		return ask
	case m.gateway.IsValid():
		return descKey{action: routeplane.Forward, is6: m.is6, dev: m.dev, gateway: m.gateway, mtu: m.mtu}
	case m.mtu != 0:
		// The next hop is that of the neighbour, which other routes share.
		return ask
	}
	return descKey{action: routeplane.Connected, is6: m.is6, dev: m.dev}
}

// hopOf tells what a descriptor stands for now, and the gateway that this depends on.
func (f *feed) hopOf(one *descriptor) (hop routeplane.Hop, via gatewayKey) {
	ask := routeplane.Hop{}
	if one.condemned {
		return ask, via
	}
	k := one.descKey
	if k.nexthop != 0 {
		object, ok := f.nexthops[k.nexthop]
		switch {
		case !ok || object.odd:
			return ask, via
		case object.blackhole:
			return routeplane.Hop{Action: routeplane.Blackhole}, via
		case !object.gateway.IsValid() && k.mtu != 0:
			return ask, via
		}
		k.dev, k.gateway = object.dev, object.gateway
	}
	if dev, ok := f.devices[k.dev]; !ok || !dev.ready() {
		return ask, via
	}
	hop, ok := f.outOf(k.dev, k.is6)
	if !ok {
		return routeplane.Hop{Action: routeplane.Elsewhere, Dev: k.dev}, via
	}
	if k.mtu != 0 {
		hop.MTU = uint16(min(uint32(hop.MTU), k.mtu))
	}
	if !k.gateway.IsValid() {
		hop.Action = routeplane.Connected
		return hop, via
	}
	via = gatewayKey{IfIndex: k.dev, Addr: k.gateway}
	n := f.neighbours[via]
	if !n.Usable() {
		return routeplane.Hop{Action: routeplane.Resolve, Dev: k.dev}, via
	}
	hop.Action, hop.DstMAC = routeplane.Forward, n.MAC
	return hop, via
}

// outOf fills in what every way out by a device has in common; ok is false if frames cannot be redirected
// there. The device has to be ready.
func (f *feed) outOf(index int, is6 bool) (hop routeplane.Hop, ok bool) {
	port, vlan, ok := f.portOf(index)
	if !ok || !f.devices[port].ready() {
		return hop, false
	}
	a := f.ability(port)
	if a.deaf {
		return hop, false
	}
	dev := f.devices[index]
	mtu := dev.mtu
	if is6 {
		if conf, ok := f.confs[index]; ok && conf.mtu6 > 0 {
			mtu = min(mtu, conf.mtu6)
		}
	}
	return routeplane.Hop{Dev: index, Port: port, VLAN: vlan, MTU: uint16(min(mtu, 65535)), SrcMAC: dev.mac,
		LinearOnly: a.linearOnly}, true
}

// newHop gives the number of a new descriptor its meaning, before any route leads there.
func (f *feed) newHop(id uint32) {
	one := &f.descs.all[id]
	one.hop, one.via = f.hopOf(one)
	f.setHop(one.value, one.hop)
	f.use(one.via, id)
}

// goneHop ends what newHop began.
func (f *feed) goneHop(id uint32) { f.unuse(f.descs.all[id].via, id) }

// refresh derives the meaning of a descriptor anew.
func (f *feed) refresh(id uint32) {
	one := &f.descs.all[id]
	hop, via := f.hopOf(one)
	if hop != one.hop {
		one.hop = hop
		f.setHop(one.value, hop)
	}
	if via != one.via {
		f.unuse(one.via, id)
		one.via = via
		f.use(via, id)
	}
}

func (f *feed) refreshAll() {
	f.descs.each(func(id uint32, _ *descriptor) { f.refresh(id) })
}

// condemn has descriptors ask whose routes the kernel may have removed without telling.
// It returns whether there are any.
func (f *feed) condemn(fn func(*descriptor) bool) bool {
	condemned := f.descs.condemn(fn)
	for _, id := range condemned {
		// Those with a fixed number lead to the kernel, which knows better, or drop, and such routes do not
		// depend on a device.
		if f.descs.own(id) {
			f.refresh(id)
		}
	}
	return len(condemned) > 0
}

func (f *feed) setHop(number uint32, hop routeplane.Hop) {
	if err := f.plane.SetHop(number, hop); err != nil {
		f.fail(fmt.Errorf("writing next hop %d into the data plane: %w", number, err))
	}
}
