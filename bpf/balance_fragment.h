/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_BALANCE_FRAGMENT_H
#define CULVERT_BALANCE_FRAGMENT_H

#include "balance_take.h"

/*
 * Fragments: the first one has the ports, the others go where it went. Of IPv6 those whose fragment header follows the
 * IPv6 header.
 */

#define BALANCE_IP6_FRAGMENT 8 /* bytes of the header */

/* What a fragment is. */
struct balance_part {
	struct balance_datagram of __attribute__((aligned(8)));
	bool first;
	bool more;
	__u8 head; /* headers of IP, bytes */
	__u8 proto;
};

static __always_inline __u32 balance_first_time(void)
{
	return bpf_ktime_get_coarse_ns() >> BALANCE_FIRST_SHIFT;
}

static __always_inline void balance_part4(const void *ip, struct balance_part *part)
{
	__u16 off = bpf_ntohs(LOAD16(ip + 6));

	part->first = !(off & 0x1fff);
	part->more = off & 0x2000;
	part->head = 20;
	part->proto = LOAD8(ip + 9);
	part->of.id = LOAD16(ip + 4);
	part->of.proto = part->proto;
}

static __always_inline void balance_part6(const void *ip, struct balance_part *part)
{
	__u16 off = bpf_ntohs(LOAD16(ip + 42));

	part->first = !(off & 0xfff8);
	part->more = off & 1;
	part->head = 40 + BALANCE_IP6_FRAGMENT;
	part->proto = LOAD8(ip + 40);
	part->of.id = LOAD32(ip + 44);
}

/* A fragment that is not the first one. */
static __always_inline int balance_rest(const struct balance_part *part, struct balance_packet *p,
					struct balance_vip_key *key)
{
	struct balance_first *first = bpf_map_lookup_elem(&balance_fragments, &part->of);
	const struct balance_vip *vip;

	p->quiet = true;
	if (first && balance_first_time() - first->time <= BALANCE_FIRST_WAIT) {
		if (!first->owner)
			return REASON_NONE;
		if (!balance_stays(first->owner, 0))
			return DROP_BALANCE_FRAGMENT;
		p->owner = first->owner;
		p->flow.hash = first->hash;
		p->flow.vip = first->vip;
		balance_event(p->flow.vip, BALANCE_EVENT_FRAGMENT);
		return FWD_BALANCE_FRAGMENT;
	}
	vip = balance_any(key);
	if (!vip)
		return REASON_NONE;
	p->flow.vip = vip->number;
	balance_event(p->flow.vip, BALANCE_EVENT_FRAGMENT);
	if (!(vip->flags & BALANCE_VIP_SOURCE)) {
		balance_event(p->flow.vip, BALANCE_EVENT_LOST);
		return DROP_BALANCE_FRAGMENT;
	}
	balance_hash(&p->flow); /* without ports */
	p->owner = balance_by_ring(&p->flow, vip->flags, p->proto);
	if (p->owner && balance_stays(p->owner, 0))
		return FWD_BALANCE_FRAGMENT;
	balance_event(p->flow.vip, BALANCE_EVENT_EMPTY);
	return PASS_BALANCE_EMPTY;
}

/* What a fragment is, and the addresses of it; false if it is none of TCP or UDP. */
static __always_inline bool balance_part(const void *ip, const void *data_end,
					 struct balance_packet *p, struct balance_part *part,
					 struct balance_vip_key *key)
{
	if (p->ip == 4) {
		if (ip + 20 > data_end)
			return false;
		balance_addresses(ip, true, key, &p->flow);
		balance_part4(ip, part);
	} else {
		if (ip + 40 + BALANCE_IP6_FRAGMENT > data_end)
			return false;
		balance_addresses(ip, false, key, &p->flow);
		balance_part6(ip, part);
	}
	part->of.src[0] = p->flow.src[0];
	part->of.src[1] = p->flow.src[1];
	part->of.dst = key->addr;
	key->proto = part->proto;
	return p->ip_len >= part->head &&
	       (part->proto == IPPROTO_TCP || part->proto == IPPROTO_UDP);
}

/* Whether the rest of another flow's packet may be on its way under the same number. */
static __always_inline bool balance_held(const struct balance_part *part,
					 const struct balance_packet *p)
{
	const struct balance_first *first = bpf_map_lookup_elem(&balance_fragments, &part->of);

	if (!first || first->hash == p->flow.hash ||
	    balance_first_time() - first->time >= BALANCE_FIRST_HOLD)
		return false;
	if (first->owner && !balance_stays(first->owner, 0))
		return false;
	balance_event(first->owner ? first->vip : p->flow.vip, BALANCE_EVENT_COLLISION);
	return true;
}

/* Keeps where the other fragments are to go: owner 0 is for those to a port that is no VIP's. */
static __always_inline void balance_gone(const struct balance_part *part,
					 const struct balance_packet *p)
{
	struct balance_first first = {
		.hash = p->flow.hash,
		.owner = p->owner,
		.vip = p->flow.vip,
		.time = balance_first_time(),
	};

	if (!balance_held(part, p))
		bpf_map_update_elem(&balance_fragments, &part->of, &first, BPF_ANY);
}

/*
 * REASON_NONE for fragments that are to no VIP; the owner is set for those that follow a first one. FWD_BALANCE is for
 * a first one, which goes where a whole packet would.
 */
__noinline int balance_fragment(struct xdp_md *ctx, struct balance_packet *p)
{
	struct balance_vip_key key __attribute__((aligned(8))) = {};
	const struct balance_vip *vip;
	struct balance_part part = {};
	void *ip, *data_end;

	if (!balance_on || !p)
		return REASON_NONE;
	data_end = (void *)(long)ctx->data_end;
	ip = balance_ip(ctx, p);
	if (!balance_part(ip, data_end, p, &part, &key))
		return REASON_NONE;
	p->proto = part.proto;
	p->fragment = true;
	if (!part.first)
		return balance_rest(&part, p, &key);
	if (!balance_ports(ip + (p->ip == 4 ? 20 : 40 + BALANCE_IP6_FRAGMENT), data_end,
			   p->ip_len - part.head, p, &key.port))
		return balance_any(&key) ? PUNT_BALANCE_HEADERS : REASON_NONE;
	vip = balance_vip(&key);
	if (!vip) {
		if (part.more && balance_any(&key))
			balance_gone(&part, p); /* there is no owner */
		return REASON_NONE;
	}
	balance_to(p, vip);
	p->more = part.more;
	if (part.more)
		balance_event(p->flow.vip, BALANCE_EVENT_FRAGMENT);
	return FWD_BALANCE;
}

/* Has the other fragments follow the first one. */
__noinline int balance_follow(struct xdp_md *ctx, struct balance_packet *p)
{
	struct balance_vip_key key __attribute__((aligned(8))) = {};
	struct balance_part part = {};
	void *ip, *data_end;

	if (!balance_on || !p)
		return 0;
	data_end = (void *)(long)ctx->data_end;
	ip = balance_ip(ctx, p);
	if (balance_part(ip, data_end, p, &part, &key))
		balance_gone(&part, p);
	return 0;
}

#endif
