/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_ROUTE_SOURCE_H
#define CULVERT_ROUTE_SOURCE_H

#include "fib.h"

/*
 * The checks of a source that Linux makes before it forwards (ip_route_input_slow, fib_validate_source, ip6_forward).
 * A packet that may fail one goes to the kernel, which decides.
 */

/* What the checks need of the device that a packet came in by. */
struct route_from {
	__u32 index;
	__u8 flags; /* ROUTE_DEV_ */
};

/* Whether an address is this host's. */
static __always_inline bool route_own(const struct route_state *st, __be32 addr)
{
	return bloom_has(&st->own, (__u32)addr * BLOOM_SPREAD) &&
	       bpf_map_lookup_elem(&route_own4, &addr);
}

/*
 * Checks that the route back to the source is unicast and, if strict is set, leads through the device that the packet
 * came in by.
 */
static __noinline int route_way_back(struct xdp_md *ctx, const struct packet *pkt, __u32 dev,
				     bool strict, bool current)
{
	struct bpf_fib_lookup fib __attribute__((aligned(8)));
	const void *ip = pkt->data + pkt->l3;
	struct route_hop *hop;
	__u32 number = 0;
	int answer;

	barrier_var(ip);
	if (ip + 20 > pkt->data_end)
		return PUNT_ROUTE_MALFORMED;
	if (route_mirror && current)
		number = lpm_find4(LOAD32(ip + 12));
	hop = bpf_map_lookup_elem(&route_hops, &number);
	if (!hop)
		return PUNT_ROUTE_SOURCE;
	switch (hop->action) {
	case ROUTE_FORWARD:
	case ROUTE_CONNECTED:
	case ROUTE_RESOLVE:
	case ROUTE_ELSEWHERE:
		return !strict || hop->dev == dev ? REASON_NONE : PUNT_ROUTE_SOURCE;
	case ROUTE_ASK:
		break;
	default:
		return PUNT_ROUTE_SOURCE;
	}
	answer = route_ask(ctx, pkt, dev, true, &fib);
	/*
	 * The kernel accepts any of several routes back, but the lookup gives only one. The result is not certain, so
	 * the packet is passed and not punted: it then has no rate limit.
	 */
	if (answer != BPF_FIB_LKUP_RET_SUCCESS && answer != BPF_FIB_LKUP_RET_NO_NEIGH)
		return PASS_ROUTE_KERNEL;
	return !strict || fib.ifindex == dev ? REASON_NONE : PASS_ROUTE_KERNEL;
}

/* Checks the source of an IPv4 packet. */
static __always_inline int route_source4(struct xdp_md *ctx, const struct packet *pkt,
					 const struct route_from *in, const struct route_state *st,
					 bool current)
{
	const void *ip = pkt->data + pkt->l3;

	barrier_var(ip);
	if (ip + 20 > pkt->data_end)
		return PUNT_ROUTE_MALFORMED;
	/* With policy rules, an address may be this host's in one VRF only. The kernel decides then. */
	if (route_own(st, LOAD32(ip + 12)))
		return st->full4 ? PASS_ROUTE_KERNEL : PUNT_ROUTE_MARTIAN;
	if (!(in->flags & (ROUTE_DEV_STRICT | ROUTE_DEV_LOOSE)) && !st->full4)
		return REASON_NONE;
	/*
	 * The kernel looks up the route back as if the packet had come in by lo. Policy rules may treat lo and the
	 * device differently.
	 */
	if (in->flags & (ROUTE_DEV_STRICT | ROUTE_DEV_LOOSE) && st->full4)
		return PASS_ROUTE_KERNEL;
	return route_way_back(ctx, pkt, in->index, in->flags & ROUTE_DEV_STRICT, current);
}

#endif
