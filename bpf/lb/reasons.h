/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_REASONS_H
#define CULVERT_LB_REASONS_H

/* The reasons of the load balancer: see core/reason.h. */
/* clang-format off */
#define LB_REASONS(R) \
	R(FWD, LB_FLOW, "of a flow that the flow table knows: to the flow's backend") \
	R(FWD, LB_NEW, "first packet of a flow, or first after its backend has gone: to the backend that the ring names; the flow is in the table now") \
	R(FWD, LB_UNTRACKED, "by the ring, and the flow was not taken into the table: over `insert_rate`, or no room among flows in use; until it is, a change of the ring may move it") \
	R(FWD, LB_QUIC, "to the server that QUIC's connection ID names") \
	R(FWD, LB_FRAGMENT, "a fragment behind the first one, to the same backend; with `hash = \"source\"` also without a first one") \
	R(FWD, LB_ICMP, "an ICMP error, to the backend of the flow that it quotes") \
	R(XMIT, LB_ECHO, "an ICMP echo request to the address of a VIP, answered") \
	R(XMIT, LB_TOO_BIG, "does not fit with its outer headers: its sender was told what does") \
	R(XMIT, LB_UNREACHABLE, "to the address of a VIP, but no VIP's, and the kernel would have sent it on: answered with port or protocol unreachable") \
	R(PASS, LB_EMPTY, "to a VIP that has no backend for the flow: to the kernel, which does not send it on") \
	R(PUNT, LB_HEADERS, "to a VIP, with IPv4 options, IPv6 hop-by-hop or destination options, or without a whole UDP header or the first 20 bytes of TCP's: to the kernel, which does not send it on") \
	R(DROP, LB_NEXT_HOP, "no way to the backend is known: no route, no neighbor, or an interface that does not take the frame") \
	R(DROP, LB_FRAGMENT, "a fragment whose first one was not seen in the last minute, or whose backend has gone since") \
	R(DROP, LB_TOO_BIG, "does not fit, and its sender cannot be told: IPv6 of 1280 bytes or less, an ICMP error, a fragment behind the first, a source that stands for nobody, or more than 10,000 a second, and more than 1,000 by this interface") \
	R(DROP, LB_UNCLAIMED, "as `lb-unreachable`, but not to be answered, with `unclaimed = \"drop\"`, or more than 1,000 a second") \
	R(DROP, LB_EMPTY, "to a VIP that has no backend for the flow, and the kernel would have sent it on")
/* clang-format on */

#define LB_ROOM 32 /* indexes reserved for its reasons */

#endif
