// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

const (
	sizeofAttr    = unix.SizeofRtAttr
	sizeofNexthop = unix.SizeofRtNexthop
	// attrMask takes the flags off an attribute's type.
	attrMask = 0x3fff
	// rtaNexthopID is RTA_NH_ID.
	rtaNexthopID = 30
)

// nextAttr splits the first attribute off. ok is false at the end, or if the rest is malformed.
func nextAttr(b []byte) (kind uint16, value, rest []byte, ok bool) {
	if len(b) < sizeofAttr {
		return 0, nil, nil, false
	}
	size := int(binary.NativeEndian.Uint16(b))
	if size < sizeofAttr || size > len(b) {
		return 0, nil, nil, false
	}
	return binary.NativeEndian.Uint16(b[2:]) & attrMask, b[sizeofAttr:size:size], b[min(align(size), len(b)):], true
}

// u32 reads a word in the byte order of the machine, 0 if b is too short.
func u32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

// routeMessage is a route as netlink describes it.
type routeMessage struct {
	is6    bool
	prefix netip.Prefix
	table  uint32
	tos    uint8
	kind   uint8 // RTN_
	proto  uint8
	metric uint32
	// gateway may be of either family. dev is the device of the gateway or of the connected network.
	gateway netip.Addr
	dev     int
	nexthop uint32
	mtu     uint32
	realm   bool
	// unsupported is true if the kernel's answer depends on more than the destination, or if the programs cannot
	// do what the route asks for.
	unsupported bool
	// source is true if the route is for packets from some sources only.
	source bool
	// dead is true while the kernel does not use the route.
	dead bool
	// multi is true if the route has several next hops of its own.
	multi bool
	// hops are these next hops, an RTA_MULTIPATH. They are valid until the next read.
	hops []byte
	// cloned is true for an entry that the kernel derived from a route for one destination.
	cloned bool
	// identity distinguishes routes that have prefix, table, tos and metric in common. It is the same in every
	// message about a route.
	identity uint32
}

// parseRoute reads the payload of an RTM_NEWROUTE or RTM_DELROUTE. ok is false if it is no route of IPv4 or IPv6.
func parseRoute(data []byte, m *routeMessage) (ok bool) {
	if len(data) < unix.SizeofRtMsg {
		return false
	}
	family := data[0]
	if family != unix.AF_INET && family != unix.AF_INET6 {
		return false
	}
	*m = routeMessage{is6: family == unix.AF_INET6, tos: data[3], table: uint32(data[4]), proto: data[5], kind: data[7]}
	flags := binary.NativeEndian.Uint32(data[8:])
	m.cloned = flags&unix.RTM_F_CLONED != 0
	m.dead = flags&unix.RTNH_F_DEAD != 0
	m.source = data[2] != 0
	m.unsupported = m.source
	dstLen := int(data[1])

	var dst, hops []byte
	id := newIdentity()
	if !m.is6 {
		// IPv6 distinguishes routes by the next hop only, IPv4 by everything.
		id.add(uint32(data[5]) | uint32(data[6])<<8 | uint32(data[7])<<16)
	}
	for b := data[unix.SizeofRtMsg:]; ; {
		kind, value, rest, more := nextAttr(b)
		if !more {
			break
		}
		b = rest
		switch kind {
		case unix.RTA_DST:
			dst = value
		case unix.RTA_TABLE:
			m.table = u32(value)
		case unix.RTA_PRIORITY:
			m.metric = u32(value)
		case unix.RTA_OIF:
			m.dev = int(u32(value))
		case unix.RTA_GATEWAY:
			m.gateway, _ = netip.AddrFromSlice(value)
		case unix.RTA_VIA:
			m.gateway = parseVia(value)
			m.unsupported = m.unsupported || !m.gateway.IsValid()
			id.bytes(kind, value)
		case rtaNexthopID:
			m.nexthop = u32(value)
		case unix.RTA_MULTIPATH:
			m.multi, hops = true, value
		case unix.RTA_SRC:
			id.add(uint32(data[2]))
			id.bytes(kind, value)
		case unix.RTA_ENCAP, unix.RTA_ENCAP_TYPE:
			m.unsupported = true
			id.bytes(kind, value)
		case unix.RTA_METRICS:
			m.mtu = parseMTU(value)
			if !m.is6 {
				id.bytes(kind, value)
			}
		case unix.RTA_FLOW:
			m.realm = true
			if !m.is6 {
				id.bytes(kind, value)
			}
		case unix.RTA_CACHEINFO:
			// struct rta_cacheinfo has clntref, lastuse and expires first. The kernel stops using a route when
			// it expires, and sends the notification later.
			if len(value) >= 12 && u32(value[8:]) != 0 {
				m.unsupported = true
			}
		default:
			if !m.is6 {
				id.bytes(kind, value)
			}
		}
	}
	m.prefix, ok = makePrefix(m.is6, dst, dstLen)
	// A next hop object can change, so the route's identity has the object's number and not its gateway.
	if m.nexthop != 0 {
		id.add(m.nexthop)
		m.gateway, m.dev, m.multi, m.hops = netip.Addr{}, 0, false, nil
	} else {
		id.add(uint32(m.dev))
		if m.gateway.IsValid() {
			id.address(m.gateway)
		}
		id.hops(hops)
		m.hops = hops
	}
	m.identity = uint32(id)
	return ok
}

func makePrefix(is6 bool, dst []byte, length int) (netip.Prefix, bool) {
	addr := netip.IPv4Unspecified()
	if is6 {
		addr = netip.IPv6Unspecified()
	}
	if len(dst) > 0 {
		a, ok := netip.AddrFromSlice(dst)
		if !ok || a.Is4() == is6 {
			return netip.Prefix{}, false
		}
		addr = a
	}
	p, err := addr.Prefix(length)
	return p, err == nil
}

// parseVia reads struct rtvia.
func parseVia(b []byte) netip.Addr {
	if len(b) < 2 {
		return netip.Addr{}
	}
	switch family := binary.NativeEndian.Uint16(b); {
	case family == unix.AF_INET6 && len(b) == 18, family == unix.AF_INET && len(b) == 6:
		a, _ := netip.AddrFromSlice(b[2:])
		return a
	}
	return netip.Addr{}
}

// parseMTU returns the MTU among a route's metrics, 0 for none. It need not be locked: the kernel applies it to
// forwarded packets in any case.
func parseMTU(b []byte) uint32 {
	for {
		kind, value, rest, more := nextAttr(b)
		if !more || kind == unix.RTAX_MTU {
			return u32(value)
		}
		b = rest
	}
}

// identity is a hash: FNV-1a over words, with an extra shift.
type identity uint32

func newIdentity() identity { return 2166136261 }

func (id *identity) add(word uint32) {
	// Multiplication never carries upper bits into lower ones, so the shift does.
	h := (uint32(*id) ^ word) * 16777619
	*id = identity(h ^ h>>15)
}

func (id *identity) bytes(kind uint16, b []byte) {
	id.add(uint32(kind))
	for ; len(b) >= 4; b = b[4:] {
		id.add(binary.NativeEndian.Uint32(b))
	}
	for _, c := range b {
		id.add(uint32(c))
	}
}

func (id *identity) address(a netip.Addr) {
	if a.Is4() {
		b := a.As4()
		id.add(binary.NativeEndian.Uint32(b[:]))
		return
	}
	b := a.As16()
	id.bytes(unix.RTA_GATEWAY, b[:])
}

// hops adds RTA_MULTIPATH, an array of struct rtnexthop. It leaves the flags out, which change with the devices.
func (id *identity) hops(b []byte) {
	for len(b) >= sizeofNexthop {
		size := int(binary.NativeEndian.Uint16(b))
		if size < sizeofNexthop || size > len(b) {
			return
		}
		id.add(uint32(b[3]))
		id.bytes(unix.RTA_MULTIPATH, b[4:size])
		b = b[min(align(size), len(b)):]
	}
}
