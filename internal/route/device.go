// SPDX-License-Identifier: Apache-2.0

package route

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/host/netdev"
	"culvert/internal/route/routeplane"
)

// device is what matters of a network interface.
type device struct {
	name  string
	mac   [6]byte
	mtu   int
	flags uint32
	// ethernet devices have neighbours with MAC addresses.
	ethernet bool
	// master is the bridge, bond or VRF that it belongs to.
	master int
	vrf    bool // is one
	// parent is the device below a VLAN device of 802.1Q, vlan its tag.
	parent int
	vlan   uint16
	// taker is the port below a device that takes the port's packets: ipvlan, macvlan in its mode passthru.
	taker int
	dump  uint64
}

const readyFlags = unix.IFF_UP | unix.IFF_RUNNING

// ready tells whether the device is up and has a carrier.
func (d device) ready() bool { return d.flags&readyFlags == readyFlags }

func deviceOf(l netlink.Link) device {
	a := l.Attrs()
	d := device{name: a.Name, mtu: a.MTU, flags: a.RawFlags, master: a.MasterIndex, vrf: l.Type() == "vrf"}
	d.ethernet = a.EncapType == "ether" && len(a.HardwareAddr) == 6 &&
		a.RawFlags&(unix.IFF_NOARP|unix.IFF_LOOPBACK) == 0
	copy(d.mac[:], a.HardwareAddr)
	d.parent, d.vlan = netdev.VLANOf(l)
	// The parent may be in another network namespace, where its index means something else.
	if a.ParentIndex <= 0 || a.NetNsID >= 0 {
		return d
	}
	switch v := l.(type) {
	case *netlink.IPVlan, *netlink.IPVtap:
		d.taker = a.ParentIndex
	case *netlink.Macvlan:
		if v.Mode == netlink.MACVLAN_MODE_PASSTHRU {
			d.taker = a.ParentIndex
		}
	case *netlink.Macvtap:
		if v.Mode == netlink.MACVLAN_MODE_PASSTHRU {
			d.taker = a.ParentIndex
		}
	}
	return d
}

// handleLink takes in RTM_NEWLINK and RTM_DELLINK.
func (f *feed) handleLink(m message, told bool) {
	// Bridges send messages of family AF_BRIDGE about their ports, IPv6 some of its own about settings.
	if len(m.data) < unix.SizeofIfInfomsg || m.data[0] != unix.AF_UNSPEC {
		return
	}
	link, err := netlink.LinkDeserialize(nil, m.data)
	if err != nil {
		f.log.Warn("a netlink link notification cannot be read", "err", err)
		return
	}
	index := link.Attrs().Index
	if !f.fresh(touchKey{kind: unix.RTM_NEWLINK, number: uint32(index)}, told) {
		return
	}
	if m.kind == unix.RTM_DELLINK {
		f.removeDevice(index)
		return
	}
	d := deviceOf(link)
	d.dump = f.dump.serial
	f.setDevice(index, d)
}

func (f *feed) setDevice(index int, d device) {
	before, known := f.devices[index]
	f.devices[index] = d
	before.dump = d.dump
	if known && before == d {
		return
	}
	f.devicesChanged = true
	if known && (before.ready() && !d.ready() || before.flags&^d.flags&unix.IFF_UP != 0) {
		f.deviceLost(index)
	}
	if known && !before.ready() && d.ready() && f.refersTo(index) {
		// Routes may have become alive that were dead, for which there is no message either.
		f.wantDump()
	}
	if known && before.name != d.name || d.vlan != 0 && before != d {
		delete(f.confs, index)
	}
}

func (f *feed) removeDevice(index int) {
	d, ok := f.devices[index]
	if !ok {
		return
	}
	// Another device of its name does not carry the program before tickAttached has seen that it does.
	delete(f.attached, d.name)
	delete(f.carrying, index)
	delete(f.devices, index)
	delete(f.confs, index)
	delete(f.abilities, index)
	f.devicesChanged = true
	f.deviceLost(index)
}

// deviceLost follows the loss of a device or its carrier, with which the kernel removes routes and next hop
// objects without telling.
func (f *feed) deviceLost(index int) {
	if !f.refersTo(index) {
		return
	}
	f.condemn(func(one *descriptor) bool { return f.deviceOfDesc(one) == index })
	// What a dump has in store may be from before.
	f.abortDump()
}

// deviceOfDesc is the device by which a next hop leaves.
func (f *feed) deviceOfDesc(one *descriptor) int {
	if one.nexthop != 0 {
		return f.nexthops[one.nexthop].dev
	}
	return one.dev
}

// refersTo tells whether the fate of routes or next hop objects depends on a device in a way that the
// kernel does not report.
func (f *feed) refersTo(index int) bool {
	for id := range f.descs.all {
		one := &f.descs.all[id]
		if one.refs == 0 || one.is6 && one.action == routeplane.Local {
			continue
		}
		if dev := f.deviceOfDesc(one); dev == index || dev == severalDevices {
			return true
		}
	}
	for _, object := range f.nexthops {
		if object.dev == index {
			return true
		}
	}
	return false
}

// portOf finds the interface with the program on it that packets to a device leave by.
func (f *feed) portOf(index int) (port int, vlan uint16, ok bool) {
	d, ok := f.devices[index]
	if !ok || !d.ethernet || f.enslaved(d) {
		return 0, 0, false
	}
	if f.attached[d.name] {
		return index, 0, true
	}
	below, ok := f.devices[d.parent]
	if !ok || d.parent == 0 || below.vlan != 0 || !below.ethernet || !f.attached[below.name] || f.enslaved(below) {
		return 0, 0, false
	}
	return d.parent, d.vlan, true
}

// shared tells whether a device above takes packets to the port's own MAC address, before the kernel routes.
func (f *feed) shared(port int) bool {
	for _, d := range f.devices {
		if d.taker == port {
			return true
		}
	}
	return false
}

// hasAddress tells whether a device has an IPv4 address.
func (f *feed) hasAddress(index int) bool {
	for key := range f.addresses {
		if key.dev == index {
			return true
		}
	}
	return false
}

// enslaved tells whether a device belongs to a bridge, bond or the like, which takes its packets.
func (f *feed) enslaved(d device) bool { return d.master != 0 && !f.devices[d.master].vrf }

// ability is how a device takes frames that XDP redirects to it. Some drivers never do, and a veth does
// only while its peer listens with NAPI.
type ability struct {
	deaf       bool // not at all
	linearOnly bool // only those of one buffer
}

func (f *feed) ability(port int) ability {
	a, asked := f.abilities[port]
	if !asked {
		a = f.askAbility(port)
		f.abilities[port] = a
		f.tellAbility(port, a)
	}
	return a
}

// tellAbility logs that a device is left to the kernel, and that it is not any more.
func (f *feed) tellAbility(port int, a ability) {
	name := f.devices[port].name
	kind := "deaf " + name
	switch {
	case a.deaf && !f.logged[kind]:
		f.logged[kind] = true
		f.log.Warn("no frames can be redirected to an interface: the kernel forwards what leaves by it (route-egress); see 'culvert doctor'", "interface", name)
	case !a.deaf && f.logged[kind]:
		delete(f.logged, kind)
		f.log.Info("frames can be redirected to the interface again", "interface", name)
	}
}

func (f *feed) askAbility(port int) ability {
	if f.xdp == nil {
		return ability{}
	}
	acts, ok := f.xdp.XDPActs(port)
	return ability{deaf: ok && acts&netdev.ActXmit == 0, linearOnly: ok && acts&netdev.ActXmitSG == 0}
}

// tickAbilities asks again, since the kernel tells nobody of changes.
func (f *feed) tickAbilities() {
	for port, before := range f.abilities {
		if now := f.askAbility(port); now != before {
			f.abilities[port] = now
			f.tellAbility(port, now)
			f.devicesChanged = true
		}
	}
}

// tickAttached looks which interfaces carry the program now.
func (f *feed) tickAttached() {
	now := map[string]bool{}
	for _, name := range f.plane.Attached() {
		now[name] = true
		f.devicesChanged = f.devicesChanged || !f.attached[name]
	}
	// A device that was renamed carries it as before, so names do not tell what has lost it.
	carrying := map[int]string{}
	for _, index := range f.plane.AttachedIndexes() {
		carrying[index] = f.devices[index].name
	}
	for index, name := range f.carrying {
		// What has become of one that was deleted, or moved away, is for whoever attaches to it again to say.
		if _, still := carrying[index]; !still && f.exists(index) {
			f.log.Warn("an interface does not carry the program any more: the kernel forwards what comes in by it", "interface", cmp.Or(f.devices[index].name, name))
		}
	}
	f.devicesChanged = f.devicesChanged || len(now) != len(f.attached)
	f.attached, f.carrying = now, carrying
}

// exists asks the kernel for a device: one that is deleted loses the program before anybody is told.
func (f *feed) exists(index int) bool {
	_, err := f.rtnl.LinkByIndex(index)
	return !errors.As(err, &netlink.LinkNotFoundError{})
}

// syncDevices brings the data plane up to date with the devices and all that depends on them.
func (f *feed) syncDevices() {
	f.devicesChanged = false
	want := map[int]routeplane.Dev{}
	for index := range f.devices {
		if dev, ok := f.routeDev(index); ok {
			want[index] = dev
		}
	}
	for index := range f.pushedDevs {
		if _, ok := want[index]; !ok {
			delete(f.pushedDevs, index)
			delete(f.confs, index)
			if err := f.plane.DeleteDev(index); err != nil {
				f.fail(fmt.Errorf("taking device %d out of the data plane: %w", index, err))
			}
		}
	}
	for index, dev := range want {
		if before, ok := f.pushedDevs[index]; ok && before == dev {
			continue
		}
		f.pushedDevs[index] = dev
		if err := f.plane.SetDev(index, dev); err != nil {
			f.fail(fmt.Errorf("writing device %s into the data plane: %w", f.devices[index].name, err))
		}
	}
	f.refreshAll()
	f.setAllConnected()
}

// routeDev describes a device that packets of the programs come in by or leave by. In contrast to portOf
// this goes for those below a bridge too, for which it says that they do not forward.
func (f *feed) routeDev(index int) (dev routeplane.Dev, ok bool) {
	d := f.devices[index]
	port, vlan := index, uint16(0)
	if !f.attached[d.name] {
		if d.parent == 0 || f.devices[d.parent].vlan != 0 || !f.attached[f.devices[d.parent].name] {
			return dev, false
		}
		port, vlan = d.parent, d.vlan
	}
	conf := f.conf(index)
	a := f.ability(port)
	up := d.flags&unix.IFF_UP != 0 && f.devices[port].flags&unix.IFF_UP != 0
	own := d.ethernet && up && !f.enslaved(d) && !f.enslaved(f.devices[port]) && !f.shared(port)
	// Above 2 is as 2. Without an address of its own a device takes only what would go back by it
	// (__fib_validate_source).
	rpFilter := min(max(f.all.rpFilter, conf.rpFilter), 2)
	if rpFilter == 2 && !f.hasAddress(index) {
		rpFilter = 1
	}
	return routeplane.Dev{
		Port: port, VLAN: vlan, MAC: d.mac,
		Forward4:   own && conf.forward4,
		Forward6:   own && conf.forward6 && f.all.forward6,
		RPFilter:   rpFilter,
		Redirects:  f.all.redirects || conf.redirects,
		Xmit:       own && d.ready() && f.devices[port].ready() && !a.deaf,
		LinearOnly: a.linearOnly,
	}, true
}
