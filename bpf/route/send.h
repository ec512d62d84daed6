/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_ROUTE_SEND_H
#define CULVERT_ROUTE_SEND_H

#include "core/next_hop.h"
#include "core/takes.h"

#include "maps.h"

/* The shortest Ethernet frame, without its checksum. Shorter packets are padded to it on the wire. */
#define ROUTE_FRAME_MIN 60

/* Decrements the TTL, and updates the checksum (RFC 1624; ip_decrease_ttl). */
static __always_inline void route_age4(void *ip)
{
	__u32 check = LOAD16(ip + 10) + (__u32)bpf_htons(0x0100);

	STORE16(ip + 10, check + (check >= 0xffff));
	*(__u8 *)(ip + 8) -= 1;
}

/* Cuts off bytes behind the packet, as the kernel does, but keeps the padding of a short frame. */
static __always_inline bool route_trim(struct xdp_md *ctx, struct packet *pkt)
{
	__u32 want = pkt->l3 + pkt->ip_len;

	if (want < ROUTE_FRAME_MIN)
		want = ROUTE_FRAME_MIN;
	if (pkt->len <= want)
		return true;
	pkt->len = bpf_xdp_get_buff_len(ctx);
	return pkt->len <= want || !bpf_xdp_adjust_tail(ctx, (int)want - (int)pkt->len);
}

/*
 * Writes the Ethernet header of the next hop, with its tag if it has one, and decrements the TTL. If it fails the
 * packet is unchanged, except that padding may have been cut off.
 */
static __always_inline int route_send(struct xdp_md *ctx, struct packet *pkt,
				      const struct next_hop *hop)
{
	int grow = eth_growth(hop->vlan, pkt->vlan);
	bool v4 = pkt->ip == 4;
	void *data, *data_end, *ip;

	if (!next_hop_takes(ctx, hop, pkt->len) || !route_trim(ctx, pkt))
		return PASS_ROUTE_EGRESS;
	if (grow && bpf_xdp_adjust_head(ctx, -grow))
		return PASS_ROUTE_EGRESS;
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	ip = data + ETH_HLEN;
	if (hop->vlan)
		ip += VLAN_HLEN;
	if (ip + 20 > data_end) /* never: the header was there before */
		return DROP_ROUTE_BLACKHOLE;
	if (v4)
		route_age4(ip);
	else
		*(__u8 *)(ip + 7) -= 1;
	eth_write(data, hop, hop->vlan);
	eth_write_type(ip, !v4);
	pkt->egress = hop->port;
	return REASON_NONE;
}

#endif
