/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_ROUTE_HOP_H
#define CULVERT_ROUTE_HOP_H

#include "fib.h"

/* Next hops as the mirror has them. */

/*
 * Copies a next hop, and marks it as used. One that user space is writing is left to the kernel's lookup. Returns false for a number
 * that no next hop has.
 */
static __always_inline bool route_copy_hop(__u32 number, struct route_hop *to, __u32 used)
{
	struct route_hop *hop = bpf_map_lookup_elem(&route_hops, &number);
	__u32 seq, none;

	if (!hop)
		return false;
	seq = seq_begin(&hop->seq);
	*to = *hop;
	if (!seq_same(&hop->seq, seq)) {
		to->action = ROUTE_ASK;
		none = seq;
		asm volatile("%0 ^= %0" : "+r"(none)); /* 0, but the verifier does not know that */
		to->remember = none;
	}
	if (to->action == ROUTE_FORWARD && to->used != used)
		*(volatile __u32 *)&hop->used = used;
	to->used = used;
	return true;
}

/* The same, checked once by the verifier. */
__noinline int route_read_hop(__u32 number, struct route_hop *to, __u32 used)
{
	if (route_on && to && !route_copy_hop(number, to, used))
		to->action = ROUTE_ASK;
	return 0;
}

/*
 * Finds the next hop on a connected network, where the destination is the neighbor. The kernel is asked for a neighbor
 * that is not known.
 */
static __noinline void route_connected(const struct packet *pkt, struct route_hop *to)
{
	const void *ip = pkt->data + pkt->l3;
	struct ip_addr dst __attribute__((aligned(8)));
	__u32 *number;

	number = NULL;
	barrier_var(ip);
	if (ip + 20 <= pkt->data_end && pkt->ip == 4) {
		number = route_neighbor4(to->dev, daddr4(pkt, ip));
	} else if (pkt->ip == 6) {
		barrier_var(ip);
		if (ip + 40 <= pkt->data_end) {
			daddr6(pkt, ip, &dst);
			number = route_neighbor6(to->dev, &dst);
		}
	}
	if (number)
		route_read_hop(*number, to, to->used);
	else
		to->action = ROUTE_ASK;
}

/*
 * Whether the kernel's answer may be remembered, if it is asked in the place of a next hop. The verifier forgets here what it knows of
 * the next hop, and so looks at what follows once, and not for each way in which the next hop was found.
 */
__noinline int route_doubt(struct route_hop *hop, bool current)
{
	if (!route_mirror || !hop)
		return 0;
	if (!current)
		hop->remember = 0;
	return hop->remember;
}

#endif
