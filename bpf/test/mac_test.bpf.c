// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "stages.h"

#include "scion/mac.h"

/* For the tests alone: the packet is an info field, a hop field, and 8 bytes for the answer. */
#define INFO_OFF 0
#define HOP_OFF 8
#define ANSWER_OFF 20
#define PACKET_LEN 28

static __always_inline bool read_hop(struct xdp_md *ctx, struct hop_mac *h)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;

	if (data + PACKET_LEN > data_end)
		return false;
	*h = hop_mac_input(data + INFO_OFF, data + HOP_OFF, LOAD16(data + INFO_OFF + 2));
	return true;
}

static __always_inline void answer(struct xdp_md *ctx, __u64 value)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;

	if (data + PACKET_LEN <= data_end)
		STORE64(data + ANSWER_OFF, value);
}

/* Writes the MAC under key 0 into the packet. */
SEC("xdp")
int compute(struct xdp_md *ctx)
{
	struct aes_cmac_key *key;
	struct hop_mac h;
	__u32 index = 0;

	key = bpf_map_lookup_elem(&scion_keys, &index);
	if (!key || !read_hop(ctx, &h))
		return XDP_ABORTED;
	answer(ctx, aes_cmac(key, h.s0, h.s1, h.s2, h.s3));
	return XDP_PASS;
}

/* Writes into the packet whether the MAC of the hop field is right under any key, by way of the cache. */
SEC("xdp")
int verify(struct xdp_md *ctx)
{
	struct hop_mac h;

	if (!read_hop(ctx, &h))
		return XDP_ABORTED;
	answer(ctx, hop_verify(&h, 0));
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
