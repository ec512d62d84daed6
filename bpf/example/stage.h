/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_EXAMPLE_STAGE_H
#define CULVERT_EXAMPLE_STAGE_H

#ifdef CULVERT_EXAMPLE

#include "core/reason.h"
#include "core/rewrite.h"

#include "maps.h"

/*
 * A stage for tests, and to learn from: packets to a service get another destination address and port. It forwards
 * nothing itself. Later stages decide by the new destination, and verdict() writes it when one of them forwards.
 */

/* Fills in the address and protocol of the key. False if the IP header is truncated. The ports may be out of reach. */
static __always_inline bool example_key(const struct packet *pkt, struct example_service *key)
{
	const void *ip = pkt->data + pkt->l3;

	barrier_var(ip);
	if (ip + l4_offset(pkt) > pkt->data_end)
		return false;
	key->proto = pkt->proto;
	if (pkt->ip == 4) {
		if (ip + 20 > pkt->data_end)
			return false;
		key->addr.w[2] = IP4_MAPPED;
		key->addr.w[3] = LOAD32(ip + 16);
		return true;
	}
	if (ip + 40 > pkt->data_end)
		return false;
	copy(&key->addr, ip + 24, sizeof(key->addr));
	return true;
}

/*
 * This function is not inlined, because rx has no room for the key on its stack: a chain of calls has 512 bytes, and
 * the verifier of 6.1 counts stages that are off too.
 */
static __noinline int example_translate(struct packet *pkt)
{
	struct example_service key __attribute__((aligned(8))) = {};
	struct example_target *to;
	const void *l4;

	if (!example_key(pkt, &key))
		return REASON_NONE;
	if (!can_rewrite(pkt)) {
		/* An entry with port 0 says that the address has services. */
		return bpf_map_lookup_elem(&example_targets, &key) ? PUNT_EXAMPLE_HEADERS
								   : REASON_NONE;
	}
	l4 = pkt->data + pkt->l3 + l4_offset(pkt);
	barrier_var(l4);
	if (l4 + 4 > pkt->data_end)
		return REASON_NONE;
	key.port = LOAD16(l4 + 2);
	to = bpf_map_lookup_elem(&example_targets, &key);
	if (to)
		rewrite_to(pkt, &to->addr, to->port);
	return REASON_NONE;
}

static __always_inline int example_stage(struct xdp_md *ctx, struct packet *pkt)
{
	return example_on && pkt->port && pkt->ip ? example_translate(pkt) : REASON_NONE;
}

#endif /* CULVERT_EXAMPLE */

#endif
