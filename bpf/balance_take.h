/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_BALANCE_TAKE_H
#define CULVERT_BALANCE_TAKE_H

#include "balance_pick.h"

/* Which member a packet of a flow goes to: by the flow table, or else by the ring. */

#define BALANCE_TCP_FIN 1
#define BALANCE_TCP_SYN 2
#define BALANCE_TCP_RST 4
#define BALANCE_TCP_ACK 16

/*
 * What is known of a packet. No pointers: the functions that have it are verified by themselves, which keeps the
 * verifier from following each of their ways through the rest of the program.
 */
struct balance_packet {
	struct balance_flow flow;
	__u32 owner; /* of the member that it goes to */
	__u32 egress; /* index of the interface that it leaves by; 0: back, by the driver */
	__u32 ip_len; /* as in struct packet, and so the next six */
	__u16 odd;
	__u16 vlan;
	__u8 l3;
	__u8 ip;
	__u8 proto;
	__u8 fragment;
	__u8 vip_flags;
	__u8 tcp_flags;
	__u8 id_len; /* of the VIP, and so the next one */
	__u8 id_config;
	__u8 more; /* fragments follow */
	__u8 quiet; /* nobody is told if it does not fit */
	__u8 sent; /* it has left already */
	__u8 pad;
	__u32 mtu; /* of the packet itself, to the member that it is too big for */
};

/* Where the packet's IP header is; the verifier likes constants. */
static __always_inline void *balance_ip(struct xdp_md *ctx, const struct balance_packet *p)
{
	void *data = (void *)(long)ctx->data;

	return p->l3 == ETH_HLEN ? data + ETH_HLEN : data + ETH_HLEN + VLAN_HLEN;
}

/* Addresses of a packet, the destination into the VIP's key and the client's into the flow; ip has a whole header. */
static __always_inline void balance_addresses(const void *ip, bool v4, struct balance_vip_key *key,
					      struct balance_flow *f)
{
	if (v4) {
		key->addr.w[2] = IP4_MAPPED;
		key->addr.w[3] = LOAD32(ip + 16);
		f->src[0] = 0;
		f->src[1] = (__u64)LOAD32(ip + 12) << 32 | IP4_MAPPED;
		return;
	}
	key->addr.w[0] = LOAD32(ip + 24);
	key->addr.w[1] = LOAD32(ip + 28);
	key->addr.w[2] = LOAD32(ip + 32);
	key->addr.w[3] = LOAD32(ip + 36);
	f->src[0] = LOAD64(ip + 8);
	f->src[1] = LOAD64(ip + 16);
}

/* Whether an IPv6 packet has an address that stands for one of IPv4 (RFC 4291, 2.5.5.2): no VIP's, and nobody's. */
static __always_inline bool balance_mapped(const struct balance_vip_key *key,
					   const struct balance_flow *f)
{
	return (!f->src[0] && (__u32)f->src[1] == IP4_MAPPED) ||
	       (!(key->addr.w[0] | key->addr.w[1]) && key->addr.w[2] == IP4_MAPPED);
}

/* Ports and flags; false if the header is not there. len is of the transport header and what follows it. */
static __always_inline bool balance_ports(const void *l4, const void *data_end, __u32 len,
					  struct balance_packet *p, __be16 *dport)
{
	if (len < (p->proto == IPPROTO_TCP ? 20 : 8) || l4 + 8 > data_end)
		return false;
	p->flow.ports = LOAD32(l4);
	*dport = LOAD16(l4 + 2);
	p->tcp_flags = 0;
	if (p->proto == IPPROTO_TCP) {
		if (l4 + 14 > data_end)
			return false;
		p->tcp_flags = LOAD8(l4 + 13);
	}
	return true;
}

static __always_inline void balance_to(struct balance_packet *p, const struct balance_vip *vip)
{
	p->flow.vip = vip->number;
	p->vip_flags = vip->flags;
	balance_hash(&p->flow);
}

static __always_inline void balance_count(const struct balance_packet *p, int reason)
{
	__u32 number = p->owner & BALANCE_NUMBER;
	struct balance_sums *t = bpf_map_lookup_elem(&balance_traffic, &number);

	if (!t)
		return;
	t->packets++;
	t->bytes += p->ip_len;
	if (reason == FWD_BALANCE_NEW)
		t->flows++;
}

/* What a flow is after a packet. */
static __always_inline __u32 balance_next(__u32 state, const struct balance_packet *p)
{
	if (p->proto == IPPROTO_UDP)
		return BALANCE_FLOW_UDP;
	if (p->tcp_flags & (BALANCE_TCP_FIN | BALANCE_TCP_RST))
		return BALANCE_FLOW_CLOSING;
	if (state == BALANCE_FLOW_NEW && !(p->tcp_flags & BALANCE_TCP_SYN))
		return BALANCE_FLOW_OPEN;
	return state;
}

/*
 * Whether a packet begins another connection from a port that was used before, or one more try to reach a member that
 * does not answer: no flow that anybody has to keep.
 */
static __always_inline bool balance_anew(const struct balance_packet *p, __u32 state,
					 __u32 member_flags)
{
	if ((p->tcp_flags & (BALANCE_TCP_SYN | BALANCE_TCP_ACK)) != BALANCE_TCP_SYN)
		return false;
	return state == BALANCE_FLOW_CLOSING || member_flags & BALANCE_MEMBER_DOWN;
}

/*
 * Finds the owner for the first packet of a flow, or another one for a flow that the table has: then was is what balance_find
 * says, and gone is whether its member has gone.
 */
static __noinline int balance_choose(struct balance_packet *p, __u64 was, bool gone)
{
	bool syn = p->proto == IPPROTO_TCP &&
		   (p->tcp_flags & (BALANCE_TCP_SYN | BALANCE_TCP_ACK)) == BALANCE_TCP_SYN;
	__u32 owner = balance_by_ring(&p->flow, p->vip_flags, p->proto), has;

	if (!owner || !balance_stays(owner, 0)) {
		balance_event(p->flow.vip, BALANCE_EVENT_EMPTY);
		return PASS_BALANCE_EMPTY;
	}
	p->owner = owner;
	if (was)
		has = balance_renew(&p->flow, was, owner);
	else
		has = balance_insert(&p->flow, owner, syn);
	if (has == owner) {
		if (gone && owner != (__u32)was)
			balance_event(p->flow.vip, BALANCE_EVENT_MOVED);
		return FWD_BALANCE_NEW;
	}
	/* Another CPU was faster, and has read another ring. */
	if (has && balance_stays(has, p->vip_flags)) {
		p->owner = has;
		return FWD_BALANCE;
	}
	balance_event(p->flow.vip, BALANCE_EVENT_UNTRACKED);
	return FWD_BALANCE_UNTRACKED;
}

/* Has a packet go to the owner of its flow, which the table has as balance_find says. */
static __always_inline void balance_seen(struct balance_packet *p, __u64 found, __u16 now)
{
	__u16 time = found >> 32, next = now | balance_next(time & 3, p);

	if (next != time)
		balance_touch(&p->flow, found >> 48, next);
	p->owner = found;
}

/* Finds the owner of a packet of TCP or UDP. */
static __always_inline int balance_take(struct balance_packet *p)
{
	__u64 found = balance_find(&p->flow);
	__u16 time = found >> 32, now;

	if (!found)
		return balance_choose(p, 0, false);
	now = balance_time();
	if (balance_expired(time, now))
		return balance_choose(p, found, false);
	if (!balance_stays(found, p->vip_flags))
		return balance_choose(p, found, true);
	if (balance_anew(p, time & 3,
			 balance_stays(found, BALANCE_VIP_MOVE) ? 0 : BALANCE_MEMBER_DOWN))
		return balance_choose(p, found, false);
	balance_seen(p, found, now);
	return FWD_BALANCE;
}

#endif
