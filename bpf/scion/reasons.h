/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_SCION_REASONS_H
#define CULVERT_SCION_REASONS_H

/* The reasons of the SCION router: see core/reason.h. */
/* clang-format off */
#define SCION_REASONS(R) \
	R(PUNT, SCION_MALFORMED, "the SCION header does not decode") \
	R(PUNT, SCION_PROTOCOL, "a next header that is none of SCION's; hosts' STUN requests are here") \
	R(PUNT, SCION_BFD, "BFD") \
	R(PUNT, SCION_EMPTY, "empty path, not BFD") \
	R(PUNT, SCION_ONEHOP, "one-hop path: beacons between neighbors") \
	R(PUNT, SCION_EPIC, "EPIC path") \
	R(PUNT, SCION_PATH_TYPE, "any other path type") \
	R(PUNT, SCION_EXPIRED, "a hop field is past its time") \
	R(PUNT, SCION_INGRESS, "the hop field is for another interface") \
	R(PUNT, SCION_LENGTH, "the payload length is wrong, or the SCION packet has more than 8488 bytes") \
	R(PUNT, SCION_SRC_IA, "a source AS that cannot come from there") \
	R(PUNT, SCION_DST_IA, "a destination AS that does not fit the place on the path") \
	R(PUNT, SCION_SRC_HOST, "a local source that is no host address, or IPv4 written as IPv6") \
	R(PUNT, SCION_MAC, "the MAC is wrong under all keys") \
	R(PUNT, SCION_INGRESS_ALERT, "traceroute asks the ingress interface") \
	R(PUNT, SCION_EGRESS_ALERT, "traceroute asks the egress interface") \
	R(PUNT, SCION_EGRESS, "the egress interface is not in the topology, or a sibling's for a packet from inside") \
	R(PUNT, SCION_LINK_TYPE, "these two links may not follow each other in a segment") \
	R(PUNT, SCION_SEGMENT_CHANGE, "these two links may not meet at a segment switch") \
	R(PUNT, SCION_LINK_DOWN, "BFD says that the link is down") \
	R(PUNT, SCION_DST_HOST, "the destination host is of another IP version than `internal_addr`, or unspecified") \
	R(PUNT, SCION_SERVICE, "to a service address: the slow path picks the server") \
	R(PUNT, SCION_L4, "to a host, and the port is not in the first header: SCMP errors, cut-off headers") \
	R(PUNT, SCION_NEXT_HOP, "no neighbor is known for the link that it has to leave by") \
	R(PUNT, SCION_HOST_UNKNOWN, "to an end host that has not been found yet") \
	R(PUNT, SCION_HOST_KERNEL, "to an end host that only the kernel reaches: this host, or one behind an interface that the fast path is not attached to") \
	R(PUNT, SCION_MTU, "larger than the way out takes: the slow path sends it in IP fragments, or answers with packet too big") \
	R(PUNT, SCION_BUFFERS, "in several buffers, and the interface that it has to leave by takes frames of one") \
	R(PUNT, SCION_CHECKSUM, "from IPv4 without UDP checksum to IPv6, which wants one") \
	R(DROP, SCION_PATH, "the path header contradicts itself") \
	R(DROP, SCION_TRANSIT_SRC, "claims to come from another AS, but not over the sibling that owns the interface") \
	R(DROP, SCION_BFD, "BFD that is not of the link's session, or with a TTL below `bfd_min_ttl`") \
	R(DROP, SCION_SRC_SERVICE, "a service address as local source: it would end the reference's process") \
	R(DROP, SCION_INTERFACE, "of a link, or for the internal address, and came by an interface that leads elsewhere") \
	R(FWD, SCION_BR_TRANSIT, "from another AS to another AS") \
	R(FWD, SCION_OUT, "from a host of this AS to another AS") \
	R(FWD, SCION_OUT_TRANSIT, "from a sibling to another AS") \
	R(FWD, SCION_IN_TRANSIT, "from another AS to a sibling") \
	R(FWD, SCION_IN, "from another AS to a host of this AS")
/* clang-format on */

#define SCION_ROOM 48 /* indexes reserved for its reasons */

#endif
