/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_SCION_BFD_H
#define CULVERT_SCION_BFD_H

#include "maps.h"

/* The part of the BFD control packet (RFC 5880, 4.1) that is read. */
#define BFD_STATE 1 /* offset of the byte whose upper two bits are the state */
#define BFD_MY_DISC 4
#define BFD_YOUR_DISC 8
#define BFD_LOOKED_AT 12
#define BFD_STATE_DOWN 1 /* AdminDown is below it */

/* The TTL or hop limit that a BFD packet has to come with; 0 for any. */
const volatile __u8 scion_bfd_min_ttl;

/*
 * Whether a BFD packet can belong to the link's session (RFC 5880, 6.8.6). A sender that does not know the session's
 * discriminator gets nothing past this check that could change the session, and uses up no limit.
 *
 * A packet without a discriminator of ours begins a session, or says that the far end has restarted. While the
 * session is up it has to have the discriminator of the far end that is known. A far end that has really restarted is
 * noticed when the detection time is over.
 */
static __always_inline int scion_check_bfd(struct xdp_md *ctx, void *bfd, __u32 id, bool v6)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct scion_link *l = bpf_map_lookup_elem(&scion_links, &id);

	/* It is shorter, or continues in another buffer: the slow path checks it. */
	if (!l || bfd + BFD_LOOKED_AT > data_end)
		return PUNT_SCION_BFD;
	if (scion_bfd_min_ttl) {
		if (data + ETH_HLEN + 9 > data_end)
			return PUNT_SCION_BFD;
		if (LOAD8(data + ETH_HLEN + (v6 ? 7 : 8)) < scion_bfd_min_ttl)
			return DROP_SCION_BFD;
	}
	if (!l->bfd_own || LOAD32(bfd + BFD_YOUR_DISC) == l->bfd_own)
		return PUNT_SCION_BFD;
	if (LOAD32(bfd + BFD_YOUR_DISC) || LOAD8(bfd + BFD_STATE) >> 6 > BFD_STATE_DOWN)
		return DROP_SCION_BFD;
	if (l->bfd_far && LOAD32(bfd + BFD_MY_DISC) != l->bfd_far)
		return DROP_SCION_BFD;
	return PUNT_SCION_BFD;
}

#endif
