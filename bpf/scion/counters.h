/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_SCION_COUNTERS_H
#define CULVERT_SCION_COUNTERS_H

#include "send.h"

/*
 * The size class of the reference's metrics: the number of bits of the length, 6 to 14, as 0 to 8. Each constant is a
 * table with four bits for an entry: the first has the classes of multiples of 64 bytes, the second those of multiples
 * of 1024 bytes.
 */
static __always_inline __u32 size_class(__u32 len)
{
	if (len < 1024)
		return 0x4444444433332210ULL >> (len / 64 * 4) & 0xf;
	if (len < 8192)
		return 0x77776650U >> (len / 1024 * 4) & 0xf;
	return SIZE_CLASSES - 1;
}

/* The traffic type of each reason to forward, four bits each, in the order of the reasons. */
#define TRAFFIC_OF_FWD                                                      \
	(TRAFFIC_BR_TRANSIT | TRAFFIC_OUT << 4 | TRAFFIC_OUT_TRANSIT << 8 | \
	 TRAFFIC_IN_TRANSIT << 12 | TRAFFIC_IN << 16)

_Static_assert(FWD_SCION_OUT == FWD_SCION_BR_TRANSIT + 1 &&
		       FWD_SCION_OUT_TRANSIT == FWD_SCION_BR_TRANSIT + 2 &&
		       FWD_SCION_IN_TRANSIT == FWD_SCION_BR_TRANSIT + 3 &&
		       FWD_SCION_IN == FWD_SCION_BR_TRANSIT + 4,
	       "TRAFFIC_OF_FWD has another order");

/* Counts a packet that ends here; reason is no punt. The slow path counts the packets that it gets. */
static __always_inline void scion_count(const struct scion_packet *p, int reason)
{
	__u32 class = size_class(p->len);
	__u32 slot = p->in.counters;
	struct scion_counters *c;
	__u32 type;

	if (class >= SIZE_CLASSES)
		return;
	c = bpf_map_lookup_elem(&scion_traffic, &slot);
	if (!c)
		return;
	c->in[class].packets++;
	c->in[class].bytes += p->len;
	if (reason < REASON_DROP) {
		c->limited[class]++;
		return;
	}
	if (reason < REASON_FWD) {
		c->dropped[class]++;
		return;
	}
	slot = p->out_counters;
	c = bpf_map_lookup_elem(&scion_traffic, &slot);
	if (!c)
		return;
	type = TRAFFIC_OF_FWD >> 4 * (reason - FWD_SCION_BR_TRANSIT) & 0xf;
	if (type >= TRAFFIC_COUNT)
		return;
	c->out[type][class].packets++;
	c->out[type][class].bytes += p->len;
}

#endif
