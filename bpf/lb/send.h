/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_SEND_H
#define CULVERT_LB_SEND_H

#include "core/checksum.h"
#include "core/next_hop.h"
#include "core/takes.h"

#include "assign.h"

#define LB_TTL 64

#define LB_UDP_LEN 8

/* Length of the outer headers behind Ethernet, bytes. */
static __always_inline __u32 lb_overhead(const struct lb_backend *backend)
{
	if (backend->encap == LB_L2)
		return 0;
	return (backend->v6 ? 40 : 20) + (backend->encap == LB_GUE ? LB_UDP_LEN : 0);
}

/* The outer DSCP and ECN are those of the packet (RFC 6040, normal mode). */
static __always_inline __u8 lb_tos(const void *ip, bool v6)
{
	return v6 ? bpf_ntohs(LOAD16(ip)) >> 4 : LOAD8(ip + 1);
}

/* The outer IPv4 header (RFC 2003, 3.1). A packet that is never fragmented needs no identification (RFC 6864). */
static __always_inline void lb_outer4(void *ip, const struct lb_backend *backend, __u8 tos,
				      __u8 proto, __u32 len, __u32 spread)
{
	__be32 src = backend->src.w[3] | (spread & backend->src_mask);
	__be32 first = bpf_htonl(0x45000000 | tos << 16 | len);
	__be32 second = bpf_htonl(0x4000);
	__be32 third = bpf_htonl(LB_TTL << 24 | proto << 16);
	__u64 sum = (__u64)first + second + third + src + backend->addr.w[3];

	STORE32(ip, first);
	STORE32(ip + 4, second);
	STORE32(ip + 8, third);
	STORE16(ip + 10, ~csum_fold(sum));
	STORE32(ip + 12, src);
	STORE32(ip + 16, backend->addr.w[3]);
}

/* The outer IPv6 header (RFC 2473), with a flow label as in RFC 6438. */
static __always_inline void lb_outer6(void *ip, const struct lb_backend *backend, __u8 tos,
				      __u8 proto, __u32 len, __u32 spread)
{
	STORE32(ip, bpf_htonl(0x60000000 | tos << 20 | (spread & 0xfffff)));
	STORE32(ip + 4, bpf_htonl(len << 16 | proto << 8 | LB_TTL));
	copy(ip + 8, &backend->src, 12);
	STORE32(ip + 20, backend->src.w[3] | (spread & backend->src_mask));
	copy(ip + 24, &backend->addr, 16);
}

/* GUE, variant 1: the packet follows the UDP header. Tunnels may leave out the checksum (RFC 6935). */
static __always_inline void lb_gue(void *udp, const struct lb_backend *backend, __u32 len,
				   __u32 spread)
{
	STORE16(udp, bpf_htons(0xc000 | (spread & 0x3fff)));
	STORE16(udp + 2, backend->gue_port);
	STORE32(udp + 4, bpf_htonl(len << 16));
}

/*
 * Writes the outer headers at ip, and the Ethernet type in front of them. v6 and ip_len describe the inner packet.
 * False if the headers do not fit, which cannot happen after room was made for them.
 */
static __always_inline bool lb_outer(void *ip, const void *data_end,
				     const struct lb_backend *backend, __u8 tos, bool v6,
				     __u32 ip_len, __u32 spread)
{
	__u8 inner = v6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	__u32 len = ip_len;

	if (ip + 40 > data_end)
		return false; /* never: there are two headers, of 20 bytes at least */
	if (backend->encap == LB_GUE) {
		void *udp = ip + (backend->v6 ? 40 : 20);

		inner = IPPROTO_UDP;
		len += LB_UDP_LEN;
		if (udp + LB_UDP_LEN > data_end)
			return false; /* never */
		lb_gue(udp, backend, len, spread);
	}
	eth_write_type(ip, backend->v6);
	if (backend->v6)
		lb_outer6(ip, backend, tos, inner, len, spread);
	else
		lb_outer4(ip, backend, tos, inner, len + 20, spread);
	return true;
}

/*
 * Puts the outer headers in front and writes the Ethernet header. The caller has compared the length with the MTU. If
 * it fails the packet is unchanged, except that padding may have been cut off.
 */
static __always_inline bool lb_send(struct xdp_md *ctx, const struct lb_packet *p,
				    const struct lb_backend *backend)
{
	__u32 overhead = lb_overhead(backend), spread = p->flow.hash >> 16,
	      whole = p->l3 + p->ip_len;
	int grow = overhead + eth_growth(backend->hop.vlan, p->vlan);
	__u32 full;
	__u8 tos;
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	void *ip = lb_ip(ctx, p);

	if (ip + 20 > data_end)
		return false; /* never: it was read before */
	tos = lb_tos(ip, p->ip == 6);
	if (!next_hop_takes(ctx, &backend->hop, data_end - data))
		return false;
	if ((__u32)(data_end - data) != whole) {
		full = bpf_xdp_get_buff_len(ctx);
		/* Cuts off padding, which would be sent along behind the outer packet. */
		if (overhead && full > whole && bpf_xdp_adjust_tail(ctx, (int)whole - (int)full))
			return false;
	}
	if (grow && bpf_xdp_adjust_head(ctx, -grow))
		return false;
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	ip = data + ETH_HLEN;
	if (backend->hop.vlan)
		ip += VLAN_HLEN;
	if (ip + 20 > data_end)
		return false; /* never */
	/* Each address comes with two bytes that the next field, and then the type, overwrites. */
	STORE64(data, LOAD64(backend->hop.dmac));
	STORE64(data + 6, LOAD64(backend->hop.smac));
	if (backend->hop.vlan)
		eth_write_tag(data, backend->hop.vlan);
	if (!overhead) {
		eth_write_type(ip, p->ip == 6);
		return true;
	}
	return lb_outer(ip, data_end, backend, tos, p->ip == 6, p->ip_len, spread);
}

#endif
