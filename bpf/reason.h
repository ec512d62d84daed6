/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_REASON_H
#define CULVERT_REASON_H

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
	PUNT_SCION_NEXT_HOP, /* no neighbour known, or the destination is this host */
	PUNT_SCION_MTU,
	PUNT_SCION_CHECKSUM, /* UDP checksum 0 that IPv6 does not allow */

	DROP_SCION_PATH = REASON_DROP, /* path header that contradicts itself */
	DROP_SCION_TRANSIT_SRC, /* transit from inside, not over the right sibling */
	DROP_SCION_SRC_SERVICE, /* service address as source: no host, and fatal to the reference */

	FWD_SCION_BR_TRANSIT = REASON_FWD, /* external to external */
	FWD_SCION_OUT, /* from a host of the AS to external */
	FWD_SCION_OUT_TRANSIT, /* sibling to external */
	FWD_SCION_IN_TRANSIT, /* external to sibling */
	FWD_SCION_IN, /* external to a host of the AS */
};

/* Punts dropped by their limit are counted this far behind their reason. */
#define REASON_LIMITED REASON_MAX
#define REASON_SLOTS (2 * REASON_MAX)

#endif
