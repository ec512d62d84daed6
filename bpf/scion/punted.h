/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_SCION_PUNTED_H
#define CULVERT_SCION_PUNTED_H

#include "counters.h"
#include "send.h"

/*
 * Handles a punt of any stage. For a packet to an unknown end host, it asks user space to find the host. A SCION packet
 * over its rate is counted, because it ends here.
 */
static __always_inline void scion_punted(struct xdp_md *ctx, __u32 reason)
{
	__u32 index = REASON_INDEX(reason), key = 0;
	struct scion_scratch *m;

	if (!scion_on)
		return;
	m = bpf_map_lookup_elem(&scion_scratch, &key);
	if (!m)
		return;
	if (reason == PUNT_SCION_HOST_UNKNOWN) {
		struct ip_addr dst = m->p.dst;

		bpf_ringbuf_output(&scion_wanted, &dst, sizeof(dst), 0);
	} else if (reason >= REASON_LIMITED && index >= REASON_MAX + BLOCK_SCION &&
		   index <= REASON_MAX + BLOCK_SCION_LAST) {
		scion_count(&m->p, reason);
	}
}

#endif
