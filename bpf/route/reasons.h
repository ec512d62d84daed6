/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_ROUTE_REASONS_H
#define CULVERT_ROUTE_REASONS_H

/* The reasons of the IP router: see core/reason.h. */
/* clang-format off */
#define ROUTE_REASONS(R) \
	R(FWD, ROUTE, "forwarded by the mirror") \
	R(FWD, ROUTE_FIB, "forwarded, the kernel's tables were asked") \
	R(PASS, ROUTE_LOCAL, "to this host, broadcast, link-local, or IPv4 multicast with options; also without a route, while the kernel is asked, which does not tell the two apart") \
	R(PASS, ROUTE_OFF, "the device it came in by forwards nothing: its sysctl is off, it belongs to a bridge or bond, or no VLAN device has the tag; for the moment of a start, culvert has not been told of the device yet") \
	R(PASS, ROUTE_EGRESS, "leaves by a device that frames cannot be redirected to: without culvert, not Ethernet, down, or for lack of room in the frame") \
	R(PASS, ROUTE_REDIRECT, "leaves by the device that it came in by, which the kernel tells the sender") \
	R(PASS, ROUTE_KERNEL, "what decides on its way the fast path does not know: IPsec, rules of netfilter, encapsulation, a hash over more than ports, a source that the mirror cannot judge, a packet longer than the lowest MTU of a route while the kernel is asked; IPv6 neighbor discovery") \
	R(PUNT, ROUTE_MALFORMED, "a header that the kernel drops, or cut off") \
	R(PUNT, ROUTE_OPTIONS, "IPv4 options, or IPv6 hop-by-hop options") \
	R(PUNT, ROUTE_MARTIAN, "a source or destination that nobody may use here") \
	R(PUNT, ROUTE_MULTICAST, "to a multicast group") \
	R(PUNT, ROUTE_TTL, "TTL or hop limit used up; traceroute is here") \
	R(PUNT, ROUTE_MTU, "longer than the way out takes; the kernel fragments or answers") \
	R(PUNT, ROUTE_NONE, "no route") \
	R(PUNT, ROUTE_UNREACHABLE, "a route of type unreachable") \
	R(PUNT, ROUTE_PROHIBIT, "a route of type prohibit") \
	R(PUNT, ROUTE_NEIGHBOR, "the neighbor is not known; the kernel asks for it") \
	R(PUNT, ROUTE_SOURCE, "the way back to the source is not as `rp_filter` wants it") \
	R(DROP, ROUTE_BLACKHOLE, "a route of type blackhole")
/* clang-format on */

#define ROUTE_ROOM 32 /* indexes reserved for its reasons */

#endif
