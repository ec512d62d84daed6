/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_TAGS_H
#define CULVERT_FILTER_TAGS_H

#include "flow_keys.h"

/*
 * The kernel takes tags of VLAN 0 off, wherever they stand among others and however many there are, and takes in what is
 * behind them as if they were not there (__netif_receive_skb_core). So the filter judges packets without them: they are
 * taken out of the frame before anything looks at it, and put back before it goes on.
 */

/* Tags in a row that are read. */
#define FILTER_TAGS 8

struct filter_tags {
	__be32 word[FILTER_TAGS]; /* as they stand in the frame: type, priority and VLAN */
	__u32 mac[3]; /* what is in front of them */
	__u32 count;
	__u32 hidden; /* those that are out of the frame, and have to be put back */
};

/* The kinds of tags that the kernel takes off (eth_type_vlan). */
static __always_inline bool filter_is_tag(__be16 type)
{
	return type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD);
}

/* Whether a frame may have tags; most have IPv4. */
static __always_inline bool filter_tagged(struct xdp_md *ctx)
{
	const void *data = (void *)(long)ctx->data;
	const void *data_end = (void *)(long)ctx->data_end;
	__be16 type;

	if (data + ETH_HLEN > data_end)
		return true;
	type = LOAD16(data + 12);
	return type != bpf_htons(ETH_P_IP) && filter_is_tag(type);
}

/*
 * Takes the tags of VLAN 0 out of the frame. Returns a reason if it cannot, or if there are more tags than are looked
 * behind; nothing is changed then.
 */
__noinline int filter_hide_tags(struct xdp_md *ctx, struct filter_tags *tags)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	__u32 hidden = 0, kept = 0, count = 0, i;
	__be32 first = 0, second = 0;
	bool more = true;

	if (!tags)
		return 0;
#pragma unroll
	for (i = 0; i <= FILTER_TAGS; i++) {
		void *at = data + 12 + VLAN_HLEN * i;

		if (at + 2 <= data_end && !filter_is_tag(LOAD16(at))) {
			more = false;
			break;
		}
		/* A frame that ends here the kernel drops (skb_vlan_untag); one that goes on in another buffer it does not. */
		if (at + 2 + VLAN_HLEN > data_end) {
			more = bpf_xdp_get_buff_len(ctx) > (__u64)(data_end - data);
			break;
		}
		if (i == FILTER_TAGS)
			break;
		tags->word[i] = LOAD32(at);
		count = i + 1;
		if (!(LOAD16(at + 2) & bpf_htons(0xfff))) {
			hidden++;
			continue;
		}
		if (!kept)
			first = LOAD32(at);
		else
			second = LOAD32(at);
		kept++;
	}
	if (more || (kept > KEYS_TAGS && (hidden || filter_must)))
		return DROP_FILTER_TAGS;
	if (!hidden)
		return 0;
	copy(tags->mac, data, 12);
	tags->count = count;
	if (bpf_xdp_adjust_head(ctx, VLAN_HLEN * hidden))
		return DROP_FILTER_TAGS;
	tags->hidden = hidden;
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	if (data + ETH_HLEN > data_end)
		return DROP_FILTER_TAGS; /* never: that much is there, as below */
	copy(data, tags->mac, 12);
	if (kept && data + ETH_HLEN + VLAN_HLEN <= data_end)
		STORE32(data + 12, first);
	if (kept > 1 && data + ETH_HLEN + 2 * VLAN_HLEN <= data_end)
		STORE32(data + 16, second);
	return 0;
}

/* Puts back what was taken out. Returns a reason if it cannot. */
__noinline int filter_show_tags(struct xdp_md *ctx, const struct filter_tags *tags)
{
	void *data, *data_end;
	__u32 i;

	if (!tags || bpf_xdp_adjust_head(ctx, -(int)(VLAN_HLEN * tags->hidden)))
		return DROP_FILTER_TAGS; /* never: there was room for them */
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	if (data + ETH_HLEN > data_end)
		return DROP_FILTER_TAGS;
	copy(data, tags->mac, 12);
#pragma unroll
	for (i = 0; i < FILTER_TAGS; i++) {
		if (i >= tags->count)
			break;
		if (data + 12 + VLAN_HLEN * (i + 1) > data_end)
			return DROP_FILTER_TAGS;
		STORE32(data + 12 + VLAN_HLEN * i, tags->word[i]);
	}
	return 0;
}

#endif
