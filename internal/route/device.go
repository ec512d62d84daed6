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

// device holds the properties of a network interface that routing depends on.
type device struct {
	name  string
	mac   [6]byte
	mtu   int
	flags uint32
	// ethernet is true for devices whose neighbors have MAC addresses.
	ethernet bool
	// master is the index of the bridge, bond or VRF that the device belongs to.
	master int
	vrf    bool // the device is a VRF
	// parent and vlan are set for an 802.1Q VLAN device: the index of the device below, and the tag.
	parent int
	vlan   uint16
	// claims is the index of the device below whose packets this one takes: ipvlan, and macvlan in mode passthru.
	claims int
	// dump is the serial of the dump that last showed the device.
	dump uint64
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
		d.claims = a.ParentIndex
	case *netlink.Macvlan:
		if v.Mode == netlink.MACVLAN_MODE_PASSTHRU {
			d.claims = a.ParentIndex
		}
	case *netlink.Macvtap:
		if v.Mode == netlink.MACVLAN_MODE_PASSTHRU {
			d.claims = a.ParentIndex
		}
	}
	return d
}

// handleLink applies an RTM_NEWLINK or RTM_DELLINK.
func (f *feed) handleLink(m message, notified bool) {
	// Bridges send messages of family AF_BRIDGE about their ports, and IPv6 sends some of AF_INET6 about settings.
	if len(m.data) < unix.SizeofIfInfomsg || m.data[0] != unix.AF_UNSPEC {
		return
	}
	link, err := netlink.LinkDeserialize(nil, m.data)
	if err != nil {
		f.log.Warn("a netlink link notification cannot be read", "err", err)
		return
	}
	index := link.Attrs().Index
	if !f.fresh(touchKey{kind: unix.RTM_NEWLINK, number: uint32(index)}, notified) {
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
	f.unsettleAll(func(one *descriptor) bool { return f.choosesBetween(one, index) })
	if known && !before.ready() && d.ready() && f.refersTo(index) {
		// Dead routes may be alive again. The kernel sends no notification of that.
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
	// A new device of the same name counts as attached only once tickAttached has seen it.
	delete(f.attached, d.name)
	delete(f.carrying, index)
	delete(f.devices, index)
	delete(f.confs, index)
	delete(f.abilities, index)
	f.devicesChanged = true
	f.deviceLost(index)
}

// deviceLost handles the loss of a device or its carrier. The kernel then removes routes and next hop objects
// without a notification.
func (f *feed) deviceLost(index int) {
	f.lose(touchKey{kind: unix.RTM_NEWLINK, number: uint32(index)})
	if !f.refersTo(index) {
		return
	}
	f.condemn(func(one *descriptor) bool { return f.deviceOfDesc(one) == index || f.choosesBetween(one, index) })
	// The rest of a running dump may have been put together before the loss.
	f.abortDump()
}

// deviceOfDesc returns the index of the device by which a next hop leaves.
func (f *feed) deviceOfDesc(one *descriptor) int {
	if one.nexthop != 0 {
		return f.nexthops[one.nexthop].dev
	}
	return one.dev
}

// refersTo reports whether the kernel removes routes or next hop objects together with a device, without a
// notification.
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

// portOf returns the interface by which packets to a device leave, and the VLAN tag to add. ok is false if the
// interface does not carry the program, or another device takes the packets.
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

// shared reports whether a device above takes packets to the port's own MAC address before the kernel routes them.
func (f *feed) shared(port int) bool {
	for _, d := range f.devices {
		if d.claims == port {
			return true
		}
	}
	return false
}

// hasAddress reports whether a device has an IPv4 address.
func (f *feed) hasAddress(index int) bool {
	for key := range f.addresses {
		if key.dev == index {
			return true
		}
	}
	return false
}

// enslaved reports whether a device belongs to a bridge, bond or the like, which takes its packets. A VRF does not.
func (f *feed) enslaved(d device) bool { return d.master != 0 && !f.devices[d.master].vrf }

// ability returns which frames can be redirected to a device.
func (f *feed) ability(port int) netdev.Egress {
	a, asked := f.abilities[port]
	if !asked {
		a = f.xdp.Egress(port, f.generic)
		f.abilities[port] = a
		f.logAbility(port, a)
	}
	return a
}

// logAbility logs that a device stops or starts taking redirected frames.
func (f *feed) logAbility(port int, a netdev.Egress) {
	name := f.devices[port].name
	kind := "xmit " + name
	switch {
	case a.None && !f.logged[kind]:
		f.logged[kind] = true
		f.log.Warn("no frames can be redirected to an interface: the kernel forwards what leaves by it (route-egress); see 'culvert doctor'", "interface", name)
	case !a.None && f.logged[kind]:
		delete(f.logged, kind)
		f.log.Info("frames can be redirected to the interface again", "interface", name)
	}
}

// tickAbilities asks again for all abilities, since the kernel does not notify of changes.
func (f *feed) tickAbilities() {
	for port, before := range f.abilities {
		if now := f.xdp.Egress(port, f.generic); now != before {
			f.abilities[port] = now
			f.logAbility(port, now)
			f.devicesChanged = true
		}
	}
}

// tickAttached reads which interfaces carry the program now, and logs those that have lost it.
func (f *feed) tickAttached() {
	now := map[string]bool{}
	for _, name := range f.plane.Attached() {
		now[name] = true
		f.devicesChanged = f.devicesChanged || !f.attached[name]
	}
	// A renamed device still carries the program, so compare indexes instead of names.
	carrying := map[int]string{}
	for _, index := range f.plane.AttachedIndexes() {
		carrying[index] = f.devices[index].name
	}
	for index, name := range f.carrying {
		// For a device that was deleted or moved away, whoever attaches the program again logs it.
		if _, still := carrying[index]; !still && f.exists(index) {
			f.log.Warn("an interface does not carry the program any more: the kernel forwards what comes in by it", "interface", cmp.Or(f.devices[index].name, name))
		}
	}
	f.devicesChanged = f.devicesChanged || len(now) != len(f.attached)
	f.attached, f.carrying = now, carrying
}

// exists asks the kernel for a device. A deleted device loses the program before the notification arrives, so
// f.devices may still have it.
func (f *feed) exists(index int) bool {
	_, err := f.rtnl.LinkByIndex(index)
	return !errors.As(err, &netlink.LinkNotFoundError{})
}

// syncDevices updates the devices in the data plane, and the next hops and neighbors that depend on them.
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

// routeDev describes a device by which the programs receive or send packets; ok is false for any other device. In
// contrast to portOf it includes the ports of a bridge, for which it says that they do not forward.
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
	// The kernel treats values above 2 as 2. On a device without an address, loose mode works as strict mode
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
		Xmit:       own && d.ready() && f.devices[port].ready() && !a.None,
		LinearOnly: a.LinearOnly,
	}, true
}
