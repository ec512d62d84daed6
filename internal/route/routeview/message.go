// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// kind is the type of a route. The names are those of ip-route(8), except the last four.
type kind string

const (
	unicast     kind = "unicast"
	local       kind = "local"
	broadcast   kind = "broadcast" // also anycast, and multicast that the host receives
	unreachable kind = "unreachable"
	prohibit    kind = "prohibit"
	blackhole   kind = "blackhole"
	none        kind = "none"    // no route
	refused     kind = "refused" // the kernel does not accept such a packet
	multicast   kind = "multicast"
	otherKind   kind = "other"
)

var kinds = map[uint8]kind{
	unix.RTN_UNICAST: unicast, unix.RTN_LOCAL: local, unix.RTN_BROADCAST: broadcast, unix.RTN_ANYCAST: broadcast,
	unix.RTN_MULTICAST: broadcast, unix.RTN_UNREACHABLE: unreachable, unix.RTN_PROHIBIT: prohibit,
	unix.RTN_BLACKHOLE: blackhole,
}

// way is where a route leads. It is comparable.
type way struct {
	kind    kind
	dev     int
	gateway netip.Addr
	// several means more than one next hop, tunnel that packets are encapsulated, object that the route refers to a
	// next hop object, and down that the next hop cannot be used now.
	several, tunnel, object, down bool
	mtu                           uint32
}

// kernelRoute is a route as the kernel describes it.
type kernelRoute struct {
	way
	prefix netip.Prefix
	table  uint32
	metric uint32
	tos    uint8
	// why says why the kernel refuses a packet.
	why string
	// bySource means that the route is for some sources only, cached that it is an exception for one destination.
	bySource, cached bool
}

// rtaNextHopID is RTA_NH_ID of linux/rtnetlink.h.
const rtaNextHopID = 30

// attrType takes the flags off the type of an attribute.
const attrType = 0x3fff

// parseRoute reads the payload of RTM_NEWROUTE (rtnetlink(7)).
func parseRoute(b []byte) (r kernelRoute, ok bool) {
	if len(b) < unix.SizeofRtMsg {
		return r, false
	}
	family, bits := b[0], int(b[1])
	flags := binary.NativeEndian.Uint32(b[8:])
	r.bySource, r.tos, r.table = b[2] != 0, b[3], uint32(b[4])
	r.cached = flags&unix.RTM_F_CLONED != 0
	r.down = flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) != 0
	if r.kind, ok = kinds[b[7]]; !ok {
		r.kind = otherKind
	}
	addr := netip.IPv4Unspecified()
	if family == unix.AF_INET6 {
		addr = netip.IPv6Unspecified()
	}
	for b = b[unix.SizeofRtMsg:]; len(b) >= unix.SizeofRtAttr; {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return r, false
		}
		value := b[unix.SizeofRtAttr:size]
		switch typ := binary.NativeEndian.Uint16(b[2:]) & attrType; {
		case typ == unix.RTA_DST:
			addr, _ = netip.AddrFromSlice(value)
		case typ == unix.RTA_GATEWAY:
			r.gateway, _ = netip.AddrFromSlice(value)
		case typ == unix.RTA_VIA && len(value) > 2: // the family comes first
			r.gateway, _ = netip.AddrFromSlice(value[2:])
		case typ == unix.RTA_MULTIPATH:
			r.several = true
		case typ == unix.RTA_ENCAP || typ == unix.RTA_ENCAP_TYPE || typ == unix.RTA_NEWDST:
			r.tunnel = true
		case typ == unix.RTA_METRICS:
			r.mtu = metricMTU(value, family == unix.AF_INET6)
		case len(value) < 4:
		case typ == unix.RTA_OIF:
			r.dev = int(binary.NativeEndian.Uint32(value))
		case typ == unix.RTA_TABLE:
			r.table = binary.NativeEndian.Uint32(value)
		case typ == unix.RTA_PRIORITY:
			r.metric = binary.NativeEndian.Uint32(value)
		case typ == rtaNextHopID:
			r.object = true
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	if r.kind != unicast {
		// The kernel attaches such routes to some device, which does not matter.
		r.dev, r.gateway = 0, netip.Addr{}
	}
	if family == unix.AF_INET6 && addr.IsMulticast() {
		r.kind = broadcast
	}
	r.prefix = netip.PrefixFrom(addr, bits)
	return r, r.prefix.IsValid()
}

// metricMTU returns the MTU among the metrics of a route, 0 for none. IPv6 applies it to forwarded packets only if it is
// locked (ip6_dst_mtu_maybe_forward).
func metricMTU(b []byte, is6 bool) (mtu uint32) {
	locked := false
	for len(b) >= unix.SizeofRtAttr+4 {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr+4 || size > len(b) {
			break
		}
		value := binary.NativeEndian.Uint32(b[unix.SizeofRtAttr:])
		switch binary.NativeEndian.Uint16(b[2:]) {
		case unix.RTAX_MTU:
			mtu = value
		case unix.RTAX_LOCK:
			locked = value&(1<<unix.RTAX_MTU) != 0
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	if is6 && !locked {
		return 0
	}
	return mtu
}
