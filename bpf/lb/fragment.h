/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_FRAGMENT_H
#define CULVERT_LB_FRAGMENT_H

#include "assign.h"

/*
 * Fragments: the first one has the ports, the others go where it went. Of IPv6 those whose fragment header follows the
 * IPv6 header.
 */

#define BALANCE_IP6_FRAGMENT 8 /* bytes of the header */

/* What a fragment is. */
struct balance_part {
	bool first;
	bool more;
	__u8 head; /* headers of IP, bytes */
};

static __always_inline __u32 balance_first_time(void)
{
	return bpf_ktime_get_coarse_ns() >> BALANCE_FIRST_SHIFT;
}

/* What a fragment is, and its protocol and number; false if it is none of TCP or UDP. */
static __always_inline bool balance_part(const void *ip, const void *data_end,
					 struct balance_packet *p, struct balance_part *part)
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
		if (ip + 40 + BALANCE_IP6_FRAGMENT > data_end)
			return false;
		off = bpf_ntohs(LOAD16(ip + 42));
		part->first = !(off & 0xfff8);
		part->more = off & 1;
		part->head = 40 + BALANCE_IP6_FRAGMENT;
		p->proto = LOAD8(ip + 40);
		p->id = LOAD32(ip + 44);
	}
	return p->ip_len >= part->head && (p->proto == IPPROTO_TCP || p->proto == IPPROTO_UDP);
}

/* What the fragment, which balance_part has looked at, is one of; key has its destination. */
static __always_inline void balance_of(const struct balance_packet *p,
				       const struct balance_vip_key *key,
				       struct balance_datagram *of)
{
	*of = (struct balance_datagram){
		.src = {p->flow.src[0], p->flow.src[1]},
		.dst = key->addr,
		.id = p->id,
		.proto = p->ip == 4 ? p->proto : 0,
	};
}

/* A fragment that is not the first one. */
static __always_inline int balance_rest(struct balance_packet *p, struct balance_vip_key *key)
{
	struct balance_datagram of __attribute__((aligned(8)));
	struct balance_first *first;
	const struct balance_vip *vip;

	p->quiet = true;
	balance_of(p, key, &of);
	first = bpf_map_lookup_elem(&balance_fragments, &of);
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

/* Whether the rest of another flow's packet may be on its way under the same number. */
static __always_inline bool balance_held(const struct balance_datagram *of,
					 const struct balance_packet *p)
{
	const struct balance_first *first = bpf_map_lookup_elem(&balance_fragments, of);

	if (!first || first->hash == p->flow.hash ||
	    balance_first_time() - first->time >= BALANCE_FIRST_HOLD)
		return false;
	if (first->owner && !balance_stays(first->owner, 0))
		return false;
	balance_event(first->owner ? first->vip : p->flow.vip, BALANCE_EVENT_COLLISION);
	return true;
}

/* Has the other fragments follow a first one to key's address: owner 0 is for those to a port that is no VIP's. */
__noinline int balance_follow(const struct balance_packet *p, const struct balance_vip_key *key)
{
	struct balance_datagram of __attribute__((aligned(8)));

	if (!balance_on || !p || !key)
		return 0;
	balance_of(p, key, &of);
	if (!balance_held(&of, p)) {
		struct balance_first first = {
			.hash = p->flow.hash,
			.owner = p->owner,
			.vip = p->flow.vip,
			.time = balance_first_time(),
		};

		bpf_map_update_elem(&balance_fragments, &of, &first, BPF_ANY);
	}
	return 0;
}

/*
 * REASON_NONE for fragments that are to no VIP; the owner is set for those that follow a first one. FWD_BALANCE is for
 * a first one, which goes where a whole packet would. The addresses are in the flow and in to.
 */
__noinline int balance_fragment(struct xdp_md *ctx, struct balance_packet *p,
				const struct balance_vip_key *to)
{
	struct balance_vip_key key __attribute__((aligned(8)));
	struct balance_vip vip __attribute__((aligned(8)));
	struct balance_part part;
	void *ip, *data_end;

	if (!balance_on || !p || !to)
		return REASON_NONE;
	data_end = (void *)(long)ctx->data_end;
	ip = balance_ip(ctx, p);
	if (!balance_part(ip, data_end, p, &part))
		return REASON_NONE;
	key = *to; /* Linux 6.1 takes keys from the stack only */
	key.proto = p->proto;
	p->fragment = true;
	if (!part.first)
		return balance_rest(p, &key);
	if (!balance_ports(ip + (p->ip == 4 ? 20 : 40 + BALANCE_IP6_FRAGMENT), data_end,
			   p->ip_len - part.head, p, &key.port))
		return balance_any(&key) ? PUNT_BALANCE_HEADERS : REASON_NONE;
	if (!balance_service(&key, &vip)) {
		if (part.more && balance_any(&key))
			balance_follow(p, &key); /* there is no owner */
		return REASON_NONE;
	}
	balance_to(p, &vip);
	p->more = part.more;
	if (part.more)
		balance_event(p->flow.vip, BALANCE_EVENT_FRAGMENT);
	return FWD_BALANCE;
}

#endif
