// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// kernel reads the kernel's tables in the network namespace of the calling thread.
type kernel struct {
	socket *nl.SocketHandle
	links  map[int]netlink.Link
	neighs map[gateway]net.HardwareAddr
}

// gateway identifies a neighbor by device and address.
type gateway struct {
	dev  int
	addr netip.Addr
}

func newKernel() (*kernel, error) {
	s, err := nl.GetNetlinkSocketAt(-1, -1, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	k := &kernel{socket: &nl.SocketHandle{Socket: s}}
	if err := k.refresh(); err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

func (k *kernel) close() { k.socket.Close() }

// listed ignores that a listing changed while it was made. Differences are checked again later, with a new listing.
func listed(what string, err error) error {
	if err == nil || errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil
	}
	return fmt.Errorf("listing %s: %w", what, err)
}

// refresh reads devices and neighbors.
func (k *kernel) refresh() error {
	links, err := netlink.LinkList()
	if err := listed("devices", err); err != nil {
		return err
	}
	k.links = make(map[int]netlink.Link)
	for _, l := range links {
		k.links[l.Attrs().Index] = l
	}
	neighs, err := netlink.NeighList(0, netlink.FAMILY_ALL)
	if err := listed("neighbors", err); err != nil {
		return err
	}
	k.neighs = make(map[gateway]net.HardwareAddr)
	const unusable = netlink.NUD_INCOMPLETE | netlink.NUD_FAILED
	for _, n := range neighs {
		addr, ok := netip.AddrFromSlice(n.IP)
		if !ok || n.State&unusable != 0 || n.State == netlink.NUD_NONE || len(n.HardwareAddr) != 6 ||
			n.Family != netlink.FAMILY_V4 && n.Family != netlink.FAMILY_V6 {
			continue
		}
		k.neighs[gateway{n.LinkIndex, addr.Unmap()}] = n.HardwareAddr
	}
	return nil
}

// name returns the name of a device, or words with its index if the name is not known.
func (k *kernel) name(index int) string {
	if l, ok := k.links[index]; ok {
		return l.Attrs().Name
	}
	return fmt.Sprintf("index %d", index)
}

// index returns the index of the device with a name.
func (k *kernel) index(name string) (int, bool) {
	for index, l := range k.links {
		if l.Attrs().Name == name {
			return index, true
		}
	}
	return 0, false
}

func (k *kernel) request(flags int, family uint8) (*nl.NetlinkRequest, *nl.RtMsg) {
	req := nl.NewNetlinkRequest(unix.RTM_GETROUTE, flags)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: k.socket}
	msg := &nl.RtMsg{}
	msg.Family = family
	req.AddData(msg)
	return req, msg
}

func family(is6 bool) uint8 {
	if is6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// dump calls fn for each route of a family, without cached exceptions.
func (k *kernel) dump(is6 bool, fn func(kernelRoute)) error {
	req, _ := k.request(unix.NLM_F_DUMP, family(is6))
	err := req.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE, func(b []byte) bool {
		if r, ok := parseRoute(b); ok && !r.cached {
			fn(r)
		}
		return true
	})
	return listed(familyName(is6)+" routes", err)
}

// ask returns what the kernel would do with a packet that comes in by device in from an address. If in is 0, this host
// sends the packet.
func (k *kernel) ask(to, from netip.Addr, in int) (kernelRoute, error) {
	if to.IsMulticast() { // other tables decide
		return kernelRoute{way: way{kind: multicast}}, nil
	}
	r, err := k.lookup(to, from, in, unix.RTM_F_FIB_MATCH)
	if err == nil && r.kind == blackhole && in != 0 && !to.Is6() {
		// For IPv4 the kernel also returns this error for a source that it does not accept.
		own, err := k.lookup(to, netip.Addr{}, 0, unix.RTM_F_FIB_MATCH)
		if err != nil {
			return r, err
		}
		if own.kind != blackhole {
			r = kernelRoute{way: way{kind: refused}, prefix: r.prefix}
		}
	}
	if err == nil && r.kind == refused {
		r.why = k.whyRefused(to, from)
	}
	if err != nil || r.kind != unicast || r.dev != 0 || r.several {
		return r, err
	}
	// With RTM_F_FIB_MATCH the kernel does not resolve a next hop object. Without the flag it does.
	taken, err := k.lookup(to, from, in, 0)
	if err == nil && taken.kind == unicast {
		r.dev, r.gateway = taken.dev, taken.gateway
	}
	return r, err
}

// whyRefused returns why the kernel refuses a packet, in the order of its checks (ip_route_input_slow).
func (k *kernel) whyRefused(to, from netip.Addr) string {
	switch {
	case from.Is4() && martianSource(from):
		return fmt.Sprintf("no packet may come in from %s (martian)", from)
	case to.IsLoopback():
		return fmt.Sprintf("%s is a loopback address, and packets to it come from this host alone (martian)", to)
	case to == netip.IPv4Unspecified():
		return fmt.Sprintf("%s is no destination (martian)", to)
	}
	switch r, err := k.lookup(from, netip.Addr{}, 0, unix.RTM_F_FIB_MATCH); {
	case err != nil || !from.IsValid():
	case r.kind == local:
		return fmt.Sprintf("the source %s is an address of this host (martian)", from)
	case r.kind == broadcast:
		return fmt.Sprintf("the source %s is a broadcast address (martian)", from)
	}
	return "the way back to the source is another (rp_filter)"
}

func (k *kernel) lookup(to, from netip.Addr, in int, flags uint32) (kernelRoute, error) {
	req, msg := k.request(0, family(to.Is6()))
	msg.Dst_len = uint8(to.BitLen())
	msg.Flags = unix.RTM_F_LOOKUP_TABLE | flags
	req.AddData(nl.NewRtAttr(unix.RTA_DST, to.AsSlice()))
	if from.IsValid() {
		msg.Src_len = uint8(from.BitLen())
		req.AddData(nl.NewRtAttr(unix.RTA_SRC, from.AsSlice()))
	}
	if in != 0 {
		req.AddData(nl.NewRtAttr(unix.RTA_IIF, nl.Uint32Attr(uint32(in))))
	}
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
	everything := netip.PrefixFrom(to, 0).Masked()
	for kind, errno := range map[kind]unix.Errno{
		none: unix.ENETUNREACH, unreachable: unix.EHOSTUNREACH, prohibit: unix.EACCES, blackhole: unix.EINVAL,
		refused: unix.EXDEV,
	} {
		if errors.Is(err, errno) {
			return kernelRoute{way: way{kind: kind}, prefix: everything}, nil
		}
	}
	if err != nil {
		return kernelRoute{}, fmt.Errorf("asking the kernel for the way to %s: %w", to, err)
	}
	for _, b := range answers {
		if r, ok := parseRoute(b); ok {
			return r, nil
		}
	}
	return kernelRoute{}, fmt.Errorf("asking the kernel for the way to %s: no answer: try again", to)
}

// onLinkAddr returns an address from which a packet may come in by a device: one on its network that is not its own. It
// is invalid if the device has no network.
func (k *kernel) onLinkAddr(dev int, is6 bool) netip.Addr {
	l, ok := k.links[dev]
	if !ok {
		return netip.Addr{}
	}
	addrs, _ := netlink.AddrList(l, int(family(is6)))
	for _, a := range addrs {
		own, ok := netip.AddrFromSlice(a.IP)
		bits, size := a.Mask.Size()
		if !ok || own.IsLinkLocalUnicast() || bits == size {
			continue
		}
		if !is6 {
			own = own.Unmap()
		}
		network := netip.PrefixFrom(own, bits)
		for _, near := range []netip.Addr{own.Next(), own.Prev()} {
			if near.IsValid() && network.Contains(near) && (bits >= size-1 || near != network.Masked().Addr() && network.Contains(near.Next())) {
				return near
			}
		}
	}
	return netip.Addr{}
}
