/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_SCION_BFD_H
#define CULVERT_SCION_BFD_H

#include "maps.h"

/* The fields of the BFD control packet (RFC 5880, 4.1) that are read. Offsets are in bytes. */
#define BFD_STATE 1 /* offset of the byte whose upper two bits are the state */
#define BFD_MY_DISC 4
#define BFD_YOUR_DISC 8
#define BFD_READ_LEN 12
#define BFD_STATE_DOWN 1 /* AdminDown is 0 */

/* The TTL or hop limit that a BFD packet has to come with; 0 for any. */
const volatile __u8 scion_bfd_min_ttl;

/*
 * Checks whether a BFD packet can belong to the session of the link (RFC 5880, 6.8.6). A sender that does not know the
 * discriminator of the session cannot change the session, and its packets do not use up the rate of the session.
 *
 * A packet whose Your Discriminator is 0 begins a session, or tells that the far end has restarted. While the session
 * is up, its My Discriminator has to be the known one of the far end. A restart of the far end is noticed when the
 * detection time is over.
 */
static __always_inline int scion_check_bfd(struct xdp_md *ctx, void *bfd, __u32 id, bool v6)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct scion_link *l = bpf_map_lookup_elem(&scion_links, &id);

	/* The packet is shorter, or continues in another buffer: the slow path checks it. */
	if (!l || bfd + BFD_READ_LEN > data_end)
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
