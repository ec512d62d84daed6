/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_SEND_FAST_H
#define CULVERT_LB_SEND_FAST_H

#include "send.h"

/*
 * The most common encapsulation, IPv4 in IPv4 without a tag, in straight-line code. lb_backend_read and lb_send, which
 * handle every case, take 80 instructions more.
 */

/* The fields of a backend that lb_send_plain needs. */
struct lb_plain {
	__u64 dmac; /* the address, and two bytes behind it that are overwritten; so is smac */
	__u64 smac;
	__be32 src;
	__be32 src_mask;
	__be32 dst;
	__u32 port;
};

/*
 * Reads a backend. False if it has gone, is down, is being changed or is reached in another way, or if the packet does
 * not fit.
 */
static __always_inline bool lb_plain(struct lb_backend_latch *latch, __u32 id, __u32 ip_len,
				     struct lb_plain *to)
{
	__u32 seq = latch_begin(&latch->seq), has;
	const struct lb_backend *backend = &latch->version[seq & 1];

	if (backend->flags != (LB_BACKEND_USED | LB_BACKEND_PLAIN) ||
	    ip_len + 20 > backend->hop.mtu)
		return false;
	has = backend->id;
	to->dmac = LOAD64(backend->hop.dmac);
	to->smac = LOAD64(backend->hop.smac);
	to->src = backend->src.w[3];
	to->src_mask = backend->src_mask;
	to->dst = backend->addr.w[3];
	to->port = backend->hop.port;
	return has == id && seq_same(&latch->seq, seq);
}

/*
 * As lb_send, for an IPv4 packet without options and without a tag. It fails, and leaves the packet unchanged, if the
 * frame is padded or has several buffers.
 */
static __always_inline bool lb_send_plain(struct xdp_md *ctx, const struct lb_packet *p,
					  const struct lb_plain *plain)
{
	__be32 src = plain->src | ((__u32)(p->flow.hash >> 16) & plain->src_mask), first;
	const __be32 second = bpf_htonl(0x4000);
	const __be32 third = bpf_htonl(LB_TTL << 24 | IPPROTO_IPIP << 16);
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	__u32 len = data_end - data;
	void *ip;

	if (len != ETH_HLEN + p->ip_len)
		return false;
	/* Elsewhere ports that take one buffer only are not reached in the plain way. */
	if (one_buffer_below && len >= one_buffer_below && !one_buffer(ctx))
		return false;
	if (bpf_xdp_adjust_head(ctx, -20))
		return false;
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	ip = data + ETH_HLEN;
	if (ip + 40 > data_end)
		return false; /* never */
	/* Version, header length, DSCP and ECN are copied from the inner header. */
	first = bpf_htonl(bpf_ntohl(LOAD32(ip + 20)) + 20);
	STORE64(data, plain->dmac);
	STORE64(data + 6, plain->smac);
	STORE16(data + 12, bpf_htons(ETH_P_IP));
	STORE32(ip, first);
	STORE32(ip + 4, second);
	STORE32(ip + 8, third);
	STORE16(ip + 10, ~csum_fold((__u64)first + second + third + src + plain->dst));
	STORE32(ip + 12, src);
	STORE32(ip + 16, plain->dst);
	return true;
}

#endif
