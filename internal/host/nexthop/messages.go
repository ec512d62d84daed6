// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"culvert/internal/host/neigh"
)

// message is what read passes to run: notifications, or that some were lost.
type message struct {
	batch  []syscall.NetlinkMessage
	resync bool
}

// resyncGap is the shortest time between full dumps, since notifications may be lost again and again.
const resyncGap = 50 * time.Millisecond

func subscribe(buffer int) (*nl.NetlinkSocket, error) {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_NEXTHOP)
	if err != nil {
		return nil, fmt.Errorf("subscribing to netlink notifications: %w", err)
	}
	if buffer == 0 {
		buffer = defaultBuffer
	}
	// Without the privilege to exceed rmem_max the buffer is smaller. Losses are then more likely, and
	// each one makes the Resolver read everything again.
	if socket.SetReceiveBufferSize(buffer, true) != nil {
		if err := socket.SetReceiveBufferSize(buffer, false); err != nil {
			socket.Close()
			return nil, fmt.Errorf("setting the netlink receive buffer to %d bytes: %w", buffer, err)
		}
	}
	return socket, nil
}

func (r *Resolver) handleMessage(m message) {
	if m.resync {
		time.Sleep(time.Until(r.lastResync.Add(resyncGap)))
		if err := r.resync(); err != nil {
			r.onError(err)
		}
		return
	}
	for i := range m.batch {
		msg := &m.batch[i]
		if len(msg.Data) == 0 {
			continue
		}
		switch msg.Header.Type {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			r.handleLink(msg)
		case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
			r.handleNeighbor(msg)
		case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
			r.handleRoute(msg)
		case unix.RTM_NEWADDR, unix.RTM_DELADDR, unix.RTM_NEWRULE, unix.RTM_DELRULE,
			unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
			r.markAll()
		}
	}
}

// handleLink applies the change of a device. All routes are looked up again, because the kernel
// removes the IPv4 routes of a device that goes down without a notification.
func (r *Resolver) handleLink(msg *syscall.NetlinkMessage) {
	// Bridges send messages of family AF_BRIDGE about their ports, which do not describe the device.
	if msg.Data[0] != unix.AF_UNSPEC {
		return
	}
	link, err := netlink.LinkDeserialize(nil, msg.Data)
	if err != nil {
		r.onError(fmt.Errorf("reading a netlink link notification: %w", err))
		return
	}
	index := link.Attrs().Index
	if msg.Header.Type == unix.RTM_DELLINK {
		delete(r.devices, index)
	} else {
		dev := deviceOf(link)
		if r.devices[index] == dev {
			return
		}
		r.devices[index] = dev
	}
	for t := range r.targets {
		if r.leavesBy(t, index) {
			r.update(t)
		}
	}
	r.markAll()
}

func (r *Resolver) handleNeighbor(msg *syscall.NetlinkMessage) {
	if msg.Data[0] != unix.AF_INET && msg.Data[0] != unix.AF_INET6 {
		return
	}
	n, err := netlink.NeighDeserialize(msg.Data)
	if err != nil {
		r.onError(fmt.Errorf("reading a netlink neighbor notification: %w", err))
		return
	}
	key, ok := neigh.KeyOf(n)
	if !ok {
		return
	}
	if msg.Header.Type == unix.RTM_DELNEIGH {
		delete(r.neighbors, key)
	} else {
		r.neighbors[key] = neigh.EntryOf(n)
	}
	if use := r.uses[key]; use != nil {
		r.neighborChanged(key, use)
	}
}

// handleRoute marks the targets that the changed prefix covers.
func (r *Resolver) handleRoute(msg *syscall.NetlinkMessage) {
	if len(msg.Data) < unix.SizeofRtMsg {
		return
	}
	rt := nl.DeserializeRtMsg(msg.Data)
	if rt.Flags&unix.RTM_F_CLONED != 0 {
		return
	}
	attrs, err := nl.ParseRouteAttr(msg.Data[rt.Len():])
	if err != nil {
		r.onError(fmt.Errorf("reading a netlink route notification: %w", err))
		return
	}
	prefix := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if rt.Family == unix.AF_INET6 {
		prefix = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	for _, a := range attrs {
		if a.Attr.Type != unix.RTA_DST {
			continue
		}
		if addr, ok := netip.AddrFromSlice(a.Value); ok {
			prefix = netip.PrefixFrom(addr, int(rt.Dst_len))
		}
	}
	for t := range r.targets {
		// The changed route may be that to the target's gateway, which may be of the other family.
		if prefix.Contains(t.addr.WithZone("")) || t.addr.Is4() != prefix.Addr().Is4() && t.route.viaOtherFamily {
			r.mark(t)
		}
	}
}

// resync reads all devices and neighbors again, and marks all targets.
func (r *Resolver) resync() error {
	r.resyncs.Add(1)
	r.lastResync = time.Now()
	links, err := neigh.Dump(r.handle.LinkList)
	if err != nil {
		return fmt.Errorf("listing network interfaces: %w", err)
	}
	neighs, err := neigh.Dump(func() ([]netlink.Neigh, error) { return r.handle.NeighList(0, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("listing neighbors: %w", err)
	}
	r.devices = make(map[int]device, len(links))
	for _, l := range links {
		r.devices[l.Attrs().Index] = deviceOf(l)
	}
	r.neighbors = make(neigh.Table, len(neighs))
	for i := range neighs {
		if key, ok := neigh.KeyOf(&neighs[i]); ok {
			r.neighbors[key] = neigh.EntryOf(&neighs[i])
		}
	}
	for key, use := range r.uses {
		r.neighborChanged(key, use)
	}
	r.markAll()
	return nil
}
