/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_TAGS_H
#define CULVERT_FILTER_TAGS_H

#include "flow_keys.h"

/*
 * The kernel removes tags of VLAN 0 wherever they stand and however many there are, and receives the rest as if they
 * had not been there (__netif_receive_skb_core). The filter judges packets without them: it removes them from the
 * frame before anything reads it, and puts them back before the packet goes on.
 */

/* The most tags that are read. */
#define FILTER_TAGS 8

struct filter_tags {
	__be32 word[FILTER_TAGS]; /* as in the frame: type, priority and VLAN */
	__u32 mac[3]; /* the MAC addresses, which stand in front of the tags */
	__u32 count;
	__u32 hidden; /* how many were removed and have to be put back */
};

/* The types of tags that the kernel removes (eth_type_vlan). */
static __always_inline bool filter_is_tag(__be16 type)
{
	return type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD);
}

/* Whether a frame may have tags. IPv4 is tested first, because most frames are IPv4. */
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
 * Removes the tags of VLAN 0 from the frame. Returns a reason if that fails, or if more tags are left than the filter
 * skips; the packet is unchanged then.
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
		/*
		 * The kernel drops a frame that ends here (skb_vlan_untag). If the frame goes on in another buffer
		 * there may be more tags.
		 */
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
		return DROP_FILTER_TAGS; /* never: the frame has that many bytes, also below */
	copy(data, tags->mac, 12);
	if (kept && data + ETH_HLEN + VLAN_HLEN <= data_end)
		STORE32(data + 12, first);
	if (kept > 1 && data + ETH_HLEN + 2 * VLAN_HLEN <= data_end)
		STORE32(data + 16, second);
	return 0;
}

/* Puts the removed tags back. Returns a reason if that fails. */
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
