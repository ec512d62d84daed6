// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "core/compiler.h"

#include "gue.h"
#include "inner.h"
#include "outer.h"

/* Reads the outer and inner headers. Returns the reason for the packet. */
static __always_inline __u32 decap_read(struct tunnel *t)
{
	__u32 answer = decap_outer(t);

	if (answer != DECAP_FOUND)
		return answer;
	t->inner = t->l4;
	if (t->gue)
		answer = decap_gue(t);
	if (answer == DECAP_FOUND)
		answer = decap_inner(t);
	if (answer == DECAP_FOUND)
		answer = t->gue ? DECAP_GUE : DECAP_IPIP;
	return answer;
}

/*
 * The far end of the load balancer's tunnels, on a backend. It removes the outer headers. The kernel gets the inner
 * packet as if it had come in by the interface itself.
 */
SEC("xdp.frags")
int decap(struct xdp_md *ctx)
{
	struct tunnel t = {.ctx = ctx};
	__u32 reason = decap_read(&t);
	struct decap_counter *c = bpf_map_lookup_elem(&decap_counters, &reason);

	if (c) {
		c->packets++;
		c->bytes += t.len;
	}
	switch (reason) {
	case DECAP_IPIP:
	case DECAP_GUE:
		if (t.l2 == ETH_HLEN ? decap_strip(&t, ETH_HLEN) : decap_strip(&t, ETH_HLEN + 4))
			return XDP_PASS;
		return XDP_ABORTED; /* never: both headers were there */
	case DROP_ECN:
		return XDP_DROP;
	}
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
