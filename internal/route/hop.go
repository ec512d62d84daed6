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

// gatewayKey identifies a gateway by device and address.
type gatewayKey = neigh.Key

// nexthopObject is a next hop that routes refer to by number (ip nexthop).
type nexthopObject struct {
	dev       int
	gateway   netip.Addr
	blackhole bool
	// group is the NHA_GROUP of a group whose members the kernel chooses from by a hash.
	group string
	// unsupported marks other groups, tunnels, dead next hops and others that the mirror cannot follow.
	unsupported bool
	// dump is the serial of the dump that last showed the object.
	dump uint64
}

// handleNexthop applies an RTM_NEWNEXTHOP or RTM_DELNEXTHOP.
func (f *feed) handleNexthop(m message, notified bool) {
	// struct nhmsg has a byte each for family, scope, protocol and padding, and a word of flags.
	const sizeofNhMsg = 8
	const nhaFDB = 11 // NHA_FDB
	if len(m.data) < sizeofNhMsg {
		return
	}
	id, object := uint32(0), nexthopObject{dump: f.dump.serial}
	// While a next hop is dead, the kernel falls back to other routes.
	object.unsupported = binary.NativeEndian.Uint32(m.data[4:])&unix.RTNH_F_DEAD != 0
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
		case unix.NHA_GROUP:
			object.group = string(value)
		case unix.NHA_GROUP_TYPE:
			object.unsupported = object.unsupported || len(value) < 2 || binary.NativeEndian.Uint16(value) != groupByHash
		case unix.NHA_ENCAP, unix.NHA_ENCAP_TYPE, nhaFDB:
			object.unsupported = true
		}
	}
	key := touchKey{kind: unix.RTM_NEWNEXTHOP, number: id}
	if !f.fresh(key, notified) {
		return
	}
	_, known := f.nexthops[id]
	if m.kind == unix.RTM_DELNEXTHOP {
		// The kernel removes its routes without a notification.
		f.unsettleAll(func(one *descriptor) bool { return f.hasMember(one, id) })
		delete(f.nexthops, id)
		f.lose(key)
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
		if one.nexthop == id || f.hasMember(one, id) {
			f.unsettle(at)
		}
	})
}

// keyOf returns the descriptor key of a route's next hop. The zero key, and any key with action Ask and no next hop
// object, makes the programs ask.
func (f *feed) keyOf(m *routeMessage) descKey {
	ask := descKey{}
	switch {
	case m.multi && (m.unsupported || m.dead || m.kind != unix.RTN_UNICAST || m.is6 && m.prefix.Addr().IsLinkLocalUnicast()):
		return descKey{is6: m.is6, dev: severalDevices}
	case m.multi:
		return descKey{is6: m.is6, dev: severalDevices, hops: ownHops(m.hops)}
	case m.unsupported || m.dead:
		return descKey{is6: m.is6, dev: m.dev}
	}
	if m.is6 && m.prefix.Bits() >= 8 && m.prefix.Addr().IsMulticast() {
		// Each device has such a route, and none of them is for forwarding.
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
		// Every device has such a network. The packet does not say which is meant.
		return ask
	case m.nexthop != 0:
		return descKey{is6: m.is6, nexthop: m.nexthop, mtu: m.mtu}
	case m.dev == 0:
		return ask
	case m.gateway.IsValid():
		return descKey{action: routeplane.Forward, is6: m.is6, dev: m.dev, gateway: m.gateway, mtu: m.mtu}
	case m.mtu != 0:
		// The neighbor's next hop cannot have this MTU, since other routes share it.
		return ask
	}
	return descKey{action: routeplane.Connected, is6: m.is6, dev: m.dev}
}

// hopOf returns what a descriptor means now, and the gateway that this depends on, if any.
func (f *feed) hopOf(one *descriptor) (hop routeplane.Hop, via gatewayKey) {
	ask := routeplane.Hop{}
	if one.condemned {
		return ask, via
	}
	k := one.descKey
	if k.hops != "" {
		return f.choice(one), via
	}
	if k.nexthop != 0 {
		object, ok := f.nexthops[k.nexthop]
		switch {
		case !ok || object.unsupported:
			return ask, via
		case object.group != "":
			return f.choice(one), via
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
	n := f.neighbors[via]
	if !n.Usable() {
		return routeplane.Hop{Action: routeplane.Resolve, Dev: k.dev}, via
	}
	hop.Action, hop.DstMAC = routeplane.Forward, n.MAC
	return hop, via
}

// outOf returns the fields that all next hops by a device have in common. ok is false if frames cannot be redirected
// there. The device must be ready.
func (f *feed) outOf(index int, is6 bool) (hop routeplane.Hop, ok bool) {
	port, vlan, ok := f.portOf(index)
	if !ok || !f.devices[port].ready() {
		return hop, false
	}
	a := f.ability(port)
	if a.None {
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
		LinearOnly: a.LinearOnly}, true
}

// newHop writes the next hop of a new descriptor, before any route refers to it.
func (f *feed) newHop(id uint32) {
	one := &f.descs.all[id]
	if one.chooses() { // the kernel may be about to change what it chooses from
		one.unsettled, f.unsettled, f.choosing = true, true, true
	}
	one.hop, one.via = f.hopOf(one)
	f.setHop(one.value, one.hop)
	f.use(one.via, id)
}

// goneHop is the opposite of newHop.
func (f *feed) goneHop(id uint32) { f.unuse(f.descs.all[id].via, id) }

// refresh works out a descriptor's next hop again and writes it if it has changed.
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

// condemn makes the programs ask for descriptors that match, because the kernel may have removed their routes without
// a notification. It reports whether there are any.
func (f *feed) condemn(fn func(*descriptor) bool) bool {
	condemned := f.descs.condemn(fn)
	for _, id := range condemned {
		// Descriptors with a fixed number need nothing. They lead to the kernel, or they drop, and routes that
		// drop do not depend on a device.
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
