/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_FRAGMENT_H
#define CULVERT_LB_FRAGMENT_H

#include "assign.h"

/*
 * Fragments. Only the first fragment has the ports. The others go to the same backend. IPv6 fragments are those whose
 * fragment header directly follows the IPv6 header.
 */

#define LB_IP6_FRAGMENT 8 /* bytes of the header */

/* The fields of a fragment. */
struct lb_fragment_info {
	bool first;
	bool more;
	__u8 head; /* length of the IP headers, bytes */
};

static __always_inline __u32 lb_fragment_time(void)
{
	return bpf_ktime_get_coarse_ns() >> LB_FRAGMENT_TIME_SHIFT;
}

/* Reads a fragment, with its protocol and its identification. False if it is neither TCP nor UDP. */
static __always_inline bool lb_fragment_info(const void *ip, const void *data_end,
					     struct lb_packet *p, struct lb_fragment_info *part)
{
	__u16 off;

	if (p->ip == 4) {
		if (ip + 20 > data_end)
			return false;
		off = bpf_ntohs(LOAD16(ip + 6));
		part->first = !(off & 0x1fff);
		part->more = off & 0x2000;
		part->head = 20;
		p->proto = LOAD8(ip + 9);
		p->id = LOAD16(ip + 4);
	} else {
		if (ip + 40 + LB_IP6_FRAGMENT > data_end)
			return false;
		off = bpf_ntohs(LOAD16(ip + 42));
		part->first = !(off & 0xfff8);
		part->more = off & 1;
		part->head = 40 + LB_IP6_FRAGMENT;
		p->proto = LOAD8(ip + 40);
		p->id = LOAD32(ip + 44);
	}
	return p->ip_len >= part->head && (p->proto == IPPROTO_TCP || p->proto == IPPROTO_UDP);
}

/* The datagram of a fragment that lb_fragment_info has read. key has its destination. */
static __always_inline void lb_datagram_of(const struct lb_packet *p, const struct lb_vip_key *key,
					   struct lb_datagram *of)
{
	*of = (struct lb_datagram){
		.src = {p->flow.src[0], p->flow.src[1]},
		.dst = key->addr,
		.id = p->id,
		.proto = p->ip == 4 ? p->proto : 0,
	};
}

/* Decides on a fragment other than the first one. */
static __always_inline int lb_fragment_rest(struct lb_packet *p, struct lb_vip_key *key)
{
	struct lb_datagram of __attribute__((aligned(8)));
	struct lb_fragment_first *first;
	const struct lb_vip *vip;

	p->quiet = true;
	lb_datagram_of(p, key, &of);
	first = bpf_map_lookup_elem(&lb_fragments, &of);
	if (first && lb_fragment_time() - first->time <= LB_FRAGMENT_WAIT) {
		if (!first->backend)
			return REASON_NONE;
		if (!lb_backend_valid(first->backend, 0))
			return DROP_LB_FRAGMENT;
		p->backend = first->backend;
		p->flow.hash = first->hash;
		p->flow.vip = first->vip;
		lb_event(p->flow.vip, LB_EVENT_FRAGMENT);
		return FWD_LB_FRAGMENT;
	}
	vip = lb_vip_any_port(key);
	if (!vip)
		return REASON_NONE;
	p->flow.vip = vip->number;
	lb_event(p->flow.vip, LB_EVENT_FRAGMENT);
	if (!(vip->flags & LB_VIP_SOURCE)) {
		lb_event(p->flow.vip, LB_EVENT_LOST);
		return DROP_LB_FRAGMENT;
	}
	lb_flow_hash(&p->flow); /* without ports */
	p->backend = lb_ring_lookup(&p->flow, vip->flags, p->proto);
	if (p->backend && lb_backend_valid(p->backend, 0))
		return FWD_LB_FRAGMENT;
	lb_event(p->flow.vip, LB_EVENT_EMPTY);
	return PASS_LB_EMPTY;
}

/*
 * Whether the datagram of another flow with the same identification is recorded, and fragments of it may still be on
 * their way.
 */
static __always_inline bool lb_fragment_held(const struct lb_datagram *of,
					     const struct lb_packet *p)
{
	const struct lb_fragment_first *first = bpf_map_lookup_elem(&lb_fragments, of);

	if (!first || first->hash == p->flow.hash ||
	    lb_fragment_time() - first->time >= LB_FRAGMENT_HOLD)
		return false;
	if (first->backend && !lb_backend_valid(first->backend, 0))
		return false;
	lb_event(first->backend ? first->vip : p->flow.vip, LB_EVENT_COLLISION);
	return true;
}

/*
 * Records where a first fragment to the address in key went. A backend of 0 stands for a port that belongs to no VIP.
 */
__noinline int lb_fragment_record(const struct lb_packet *p, const struct lb_vip_key *key)
{
	struct lb_datagram of __attribute__((aligned(8)));

	if (!lb_on || !p || !key)
		return 0;
	lb_datagram_of(p, key, &of);
	if (!lb_fragment_held(&of, p)) {
		struct lb_fragment_first first = {
			.hash = p->flow.hash,
			.backend = p->backend,
			.vip = p->flow.vip,
			.time = lb_fragment_time(),
		};

		bpf_map_update_elem(&lb_fragments, &of, &first, BPF_ANY);
	}
	return 0;
}

/*
 * Decides on a fragment. Returns REASON_NONE if it is to no VIP, and FWD_LB_FLOW for a first fragment, which goes where
 * an unfragmented packet would. For other fragments it sets the backend. The source address is in the flow, and the
 * destination in to.
 */
__noinline int lb_fragment(struct xdp_md *ctx, struct lb_packet *p, const struct lb_vip_key *to)
{
	struct lb_vip_key key __attribute__((aligned(8)));
	struct lb_vip vip __attribute__((aligned(8)));
	struct lb_fragment_info part;
	void *ip, *data_end;

	if (!lb_on || !p || !to)
		return REASON_NONE;
	data_end = (void *)(long)ctx->data_end;
	ip = lb_ip(ctx, p);
	if (!lb_fragment_info(ip, data_end, p, &part))
		return REASON_NONE;
	key = *to; /* 6.1 takes keys from the stack only */
	key.proto = p->proto;
	p->fragment = true;
	if (!part.first)
		return lb_fragment_rest(p, &key);
	if (!lb_ports(ip + (p->ip == 4 ? 20 : 40 + LB_IP6_FRAGMENT), data_end,
		      p->ip_len - part.head, p, &key.port))
		return lb_vip_any_port(&key) ? PUNT_LB_HEADERS : REASON_NONE;
	if (!lb_vip_lookup_fast(&key, &vip)) {
		if (part.more && lb_vip_any_port(&key))
			lb_fragment_record(p, &key); /* no backend is set */
		return REASON_NONE;
	}
	lb_flow_set_vip(p, &vip);
	p->more = part.more;
	if (part.more)
		lb_event(p->flow.vip, LB_EVENT_FRAGMENT);
	return FWD_LB_FLOW;
}

#endif
