/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_ROUTE_STRAIGHT_H
#define CULVERT_ROUTE_STRAIGHT_H

#include "core/clock.h"
#include "core/straight.h"

#include "choice.h"
#include "send.h"
#include "source.h"

/*
 * The straight way of most packets: without a tag in and out, from a host that the kernel need not look up, by a route and a
 * neighbor that the mirror has, or that the kernel has chosen before for the flow. It repeats route_find and route_send for these
 * packets alone. Whatever it does not expect it leaves to them, and has written nothing by then.
 */

/* Whether the address is an ordinary one of a host: not of 0/8, 127/8, or multicast and above. */
static __always_inline bool straight_host4(__be32 addr)
{
	__u8 first = addr & 0xff;

	return first && first < 224 && first != 127;
}

/* Whether the address is neither link-local, nor multicast, nor below 0:0:0:1::. high is in host order. */
static __always_inline bool straight_host6(__u64 high)
{
	return high && high >> 56 < 0xfe;
}

/* The number of the next hop of a packet, 0 if the straight way is not its. */
static __always_inline __u32 straight_find(const void *ip, const struct route_dev *in,
					   const struct route_state *st, const bool v6)
{
	__u64 high;

	if (!v6) {
		if (in->flags & (ROUTE_DEV_STRICT | ROUTE_DEV_LOOSE) || st->full4 ||
		    !straight_host4(LOAD32(ip + 12)) || !straight_host4(LOAD32(ip + 16)) ||
		    bloom_has(&st->own, LOAD32(ip + 12) * BLOOM_SPREAD) || LOAD8(ip + 8) <= 1)
			return ROUTE_HOP_ASK;
		return lpm_find4(LOAD32(ip + 16));
	}
	high = bpf_be64_to_cpu(LOAD64(ip + 24));
	if (!straight_host6(bpf_be64_to_cpu(LOAD64(ip + 8))) || !straight_host6(high) ||
	    LOAD8(ip + 6) == IPPROTO_ICMPV6 || LOAD8(ip + 7) <= 1)
		return ROUTE_HOP_ASK;
	return lpm_find6(high, bpf_be64_to_cpu(LOAD64(ip + 32)));
}

/*
 * The number of the next hop that the kernel has chosen before for a packet of TCP or UDP, 0 if it has to be asked. hop is what the
 * mirror has for the destination.
 */
static __always_inline __u32 straight_choice(struct xdp_md *ctx, __u32 ip_len,
					     const struct route_hop *hop, const bool v6)
{
	const void *ip = (void *)(long)ctx->data + ETH_HLEN;
	const void *data_end = (void *)(long)ctx->data_end;
	__u32 seq = seq_begin(&hop->seq), mtu, slot, ports = 0, zero = 0;
	struct route_state *st;
	struct route_flow f;
	__u8 proto, policy;

	st = bpf_map_lookup_elem(&route_states, &zero);
	if (!st || !hop->remember || ip + (v6 ? 40 : 20) > data_end)
		return 0;
	proto = LOAD8(ip + (v6 ? 6 : 9));
	policy = v6 ? st->hash6 : st->hash4;
	mtu = v6 ? st->mtu6 : st->mtu4;
	if ((proto != IPPROTO_TCP && proto != IPPROTO_UDP) || policy > 1 || (mtu && ip_len > mtu))
		return 0;
	if (policy)
		ports = route_ports(ip, data_end, ip_len, proto,
				    !v6 && LOAD16(ip + 6) & bpf_htons(0x3fff), v6);
	slot = v6 ? route_slot6(LOAD32(ip + 24)) : route_slot4(LOAD32(ip + 16));
	route_flow_begin(&f, v6, policy, proto, LOAD32(ip), ports);
	if (v6)
		route_flow_add6(&f, ip, LOAD64(ip + 24), LOAD64(ip + 32));
	else
		route_flow_add(&f, 1, LOAD64(ip + 12));
	route_flow_end(&f, slot, seq);
	return route_choice(&f);
}

/* Not inlined, and given little, so that packets by a single next hop have the registers for themselves. */
static __noinline __u32 straight_choice4(struct xdp_md *ctx, __u32 ip_len,
					 const struct route_hop *hop)
{
	return straight_choice(ctx, ip_len, hop, false);
}

static __noinline __u32 straight_choice6(struct xdp_md *ctx, __u32 ip_len,
					 const struct route_hop *hop)
{
	return straight_choice(ctx, ip_len, hop, true);
}

/*
 * Forwards an IP packet of ip_len bytes without a tag and without options, and returns the index of the interface that it
 * leaves by. 0: it does not go this way, and is unchanged.
 */
static __always_inline __u32 route_straight(struct xdp_md *ctx, const struct route_dev *in,
					    __u32 ip_len, const bool v6)
{
	const __u32 l3_len = v6 ? 40 : 20;
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	__u32 len = data_end - data, number, zero = 0, seq, used, dev, to;
	void *ip = data + ETH_HLEN;
	struct route_state *st;
	struct route_hop *hop;
	__u64 now, dmac, smac;

	if (ip + l3_len > data_end || !(in->flags & (v6 ? ROUTE_DEV_FORWARD6 : ROUTE_DEV_FORWARD4)))
		return 0;
	/* Not for frames of several buffers, nor for bytes behind the packet that are no padding of a short frame. */
	if (len != ETH_HLEN + ip_len && (len < ETH_HLEN + ip_len || len > ROUTE_FRAME_MIN))
		return 0;
	st = bpf_map_lookup_elem(&route_states, &zero);
	if (!st || (v6 ? st->kernel6 : st->kernel4))
		return 0;
	now = coarse_recent();
	if (!route_trusting && now >= *(volatile const __u64 *)(v6 ? &st->until6 : &st->until4))
		return 0;
	number = straight_find(ip, in, st, v6);
	hop = bpf_map_lookup_elem(&route_hops, &number);
	if (!hop)
		return 0;
	seq = seq_begin(&hop->seq);
	if (__builtin_expect(hop->action != ROUTE_FORWARD, false)) {
		number = v6 ? straight_choice6(ctx, ip_len, hop)
			    : straight_choice4(ctx, ip_len, hop);
		hop = bpf_map_lookup_elem(&route_hops, &number);
		if (!number || !hop)
			return 0;
		seq = seq_begin(&hop->seq);
		if (hop->action != ROUTE_FORWARD)
			return 0;
	}
	to = hop->hop.port;
	dev = hop->dev;
	dmac = LOAD64(hop->hop.dmac);
	smac = LOAD64(hop->hop.smac);
	if (hop->hop.vlan || ip_len > hop->hop.mtu || !next_hop_takes(ctx, &hop->hop, len))
		return 0;
	used = hop->used;
	if (!seq_same(&hop->seq, seq))
		return 0;
	if (dev == in->index && (v6 || in->flags & ROUTE_DEV_REDIRECTS))
		return 0;
	if (used != (__u32)(now >> ROUTE_USED_SHIFT))
		*(volatile __u32 *)&hop->used = now >> ROUTE_USED_SHIFT;
	STORE64(data, dmac);
	STORE64(data + 6, smac);
	if (v6) {
		STORE16(data + 12, bpf_htons(ETH_P_IPV6));
		*(__u8 *)(ip + 7) -= 1;
	} else {
		STORE16(data + 12, bpf_htons(ETH_P_IP));
		route_age4(ip);
	}
	return to;
}

/* They are global functions, so that the verifier checks them once, and not again for each path to a call. */
__noinline __u32 route_straight4(struct xdp_md *ctx, const struct route_dev *in, __u32 ip_len)
{
	return route_on && in ? route_straight(ctx, in, ip_len, false) : 0;
}

__noinline __u32 route_straight6(struct xdp_md *ctx, const struct route_dev *in, __u32 ip_len)
{
	return route_on && in ? route_straight(ctx, in, ip_len, true) : 0;
}

#endif
