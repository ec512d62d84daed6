/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_REASON_H
#define CULVERT_CORE_REASON_H

/*
 * Why a packet left the pipeline the way it did. The prefix is the verdict:
 *
 *   PASS_  to the kernel, as if culvert were not there; never limited
 *   PUNT_  to the slow path, which answers; limited per reason
 *   DROP_  dropped, because the slow path would drop it without an answer
 *   FWD_   forwarded
 *
 * User space learns the names from the BTF of this enum. A new reason goes to the end of its class:
 * counters outlive an upgrade, so a number keeps its meaning.
 */
#define REASON_PUNT 8
#define REASON_DROP 72
#define REASON_FWD 104
#define REASON_MAX 128

enum reason {
	REASON_NONE = 0, /* not mine: ask the next stage */

	PASS_OTHER, /* no stage claimed it */

	/* IP: what the kernel would not forward, or only the kernel can */
	PASS_ROUTE_LOCAL, /* to this host, as far as is known */
	PASS_ROUTE_OFF, /* forwarding is off where it came in */
	PASS_ROUTE_EGRESS, /* leaves by a device that frames cannot be redirected to */
	PASS_ROUTE_REDIRECT, /* leaves where it came in, which the kernel tells the sender */
	PASS_ROUTE_KERNEL, /* its way depends on more than bpf_fib_lookup is told */

	PASS_BALANCE_EMPTY, /* to a VIP that has no backend for new flows */

	/* SCION: what the reference router answers or does in a way of its own */
	PUNT_SCION_MALFORMED = REASON_PUNT, /* does not decode */
	PUNT_SCION_PROTOCOL, /* next header that is none of SCION's, STUN among them */
	PUNT_SCION_BFD,
	PUNT_SCION_EMPTY,
	PUNT_SCION_ONEHOP,
	PUNT_SCION_EPIC,
	PUNT_SCION_PATH_TYPE,
	PUNT_SCION_EXPIRED,
	PUNT_SCION_INGRESS,
	PUNT_SCION_LENGTH,
	PUNT_SCION_SRC_IA,
	PUNT_SCION_DST_IA,
	PUNT_SCION_SRC_HOST,
	PUNT_SCION_MAC,
	PUNT_SCION_INGRESS_ALERT,
	PUNT_SCION_EGRESS_ALERT,
	PUNT_SCION_EGRESS,
	PUNT_SCION_LINK_TYPE,
	PUNT_SCION_SEGMENT_CHANGE,
	PUNT_SCION_LINK_DOWN,
	PUNT_SCION_DST_HOST,
	PUNT_SCION_SERVICE,
	PUNT_SCION_L4, /* delivery that needs more than the first L4 header */
	PUNT_SCION_NEXT_HOP, /* no neighbour known for a link */
	PUNT_SCION_MTU,
	PUNT_SCION_CHECKSUM, /* UDP checksum 0 that IPv6 does not allow */

	/* IP: what the kernel answers, drops or does in a way of its own */
	PUNT_ROUTE_MALFORMED, /* header that the kernel drops, or that was cut off */
	PUNT_ROUTE_OPTIONS, /* IPv4 options, IPv6 hop-by-hop options */
	PUNT_ROUTE_MARTIAN, /* source or destination that nobody may use here */
	PUNT_ROUTE_MULTICAST,
	PUNT_ROUTE_TTL, /* TTL or hop limit used up */
	PUNT_ROUTE_MTU, /* longer than the way out takes */
	PUNT_ROUTE_NONE, /* no route */
	PUNT_ROUTE_UNREACHABLE, /* route of that type */
	PUNT_ROUTE_PROHIBIT, /* route of that type */
	PUNT_ROUTE_NEIGHBOUR, /* none known */
	PUNT_ROUTE_SOURCE, /* rp_filter, or not a source as usual */

	PUNT_BALANCE_HEADERS, /* to a VIP, with headers that the balancer does not read */

	PUNT_SCION_HOST_UNKNOWN, /* to an end host that nobody has found yet */
	PUNT_SCION_HOST_KERNEL, /* to an end host that only the kernel reaches: this host, or behind a device without the program */

	DROP_SCION_PATH = REASON_DROP, /* path header that contradicts itself */
	DROP_SCION_TRANSIT_SRC, /* transit from inside, not over the right sibling */
	DROP_SCION_SRC_SERVICE, /* service address as source: no host, and fatal to the reference */

	DROP_ROUTE_BLACKHOLE, /* route of that type */

	DROP_FILTER, /* a rule says so */
	DROP_FILTER_LIMIT, /* over the rate of a rule */
	DROP_FILTER_COOKIE, /* to a protected service, with no SYN cookie of ours */

	DROP_BALANCE_NEXT_HOP, /* no way to the backend: no route, no neighbour, or a device that does not take it */
	DROP_BALANCE_FRAGMENT, /* the first fragment, which names the flow, was not seen */
	DROP_BALANCE_TOO_BIG, /* does not fit with its encapsulation, and the client cannot be told */
	DROP_SCION_INTERFACE, /* of a link whose datagrams come by another interface */

	DROP_FILTER_TAGS, /* more VLAN tags than the filter looks behind */
	DROP_FILTER_HEADERS, /* what a rule asks for is behind more headers than the filter looks behind */

	DROP_SCION_BFD, /* BFD packet that is not of the link's session */
	DROP_BALANCE_UNCLAIMED, /* to the address of a VIP, for nobody */
	DROP_BALANCE_EMPTY, /* as PASS_BALANCE_EMPTY, where the kernel would send it on */

	FWD_SCION_BR_TRANSIT = REASON_FWD, /* external to external */
	FWD_SCION_OUT, /* from a host of the AS to external */
	FWD_SCION_OUT_TRANSIT, /* sibling to external */
	FWD_SCION_IN_TRANSIT, /* external to sibling */
	FWD_SCION_IN, /* external to a host of the AS */

	FWD_ROUTE, /* by the mirrored table */
	FWD_ROUTE_FIB, /* by bpf_fib_lookup */

	FWD_FILTER_SYNACK, /* SYN to a protected service, answered with a cookie */

	FWD_BALANCE, /* to the backend that the flow table names */
	FWD_BALANCE_NEW, /* first of its flow, which is in the table now: by the ring */
	FWD_BALANCE_UNTRACKED, /* by the ring; the table did not take the flow in */
	FWD_BALANCE_QUIC, /* to the server that the connection ID names */
	FWD_BALANCE_FRAGMENT, /* after the first fragment */
	FWD_BALANCE_ICMP, /* ICMP error, to the backend of the flow it is about */
	FWD_BALANCE_ECHO, /* ICMP echo request to a VIP, answered */
	FWD_BALANCE_TOO_BIG, /* answered with packet too big */
	FWD_BALANCE_UNREACHABLE, /* as DROP_BALANCE_UNCLAIMED, answered with port or protocol unreachable */
};

/* Punts dropped by their limit are counted this far behind their reason. */
#define REASON_LIMITED REASON_MAX
#define REASON_SLOTS (2 * REASON_MAX)

#endif
