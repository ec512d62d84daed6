/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_FAST_H
#define CULVERT_LB_FAST_H

#include "send_fast.h"
#include "send.h"
#include "assign.h"

/*
 * The way that most packets take, in a piece: whole packets of TCP and UDP, of a flow that the table has, to a member that
 * is there. It is made again here, shorter, because balance_decide and balance_leave, which do the rest, took a hundred
 * instructions more.
 */

/* Whether a packet may be so simple. */
static __always_inline bool balance_simple(const struct packet *pkt)
{
	return !pkt->no_fwd_reason && !pkt->fragment &&
	       (pkt->proto == IPPROTO_TCP || pkt->proto == IPPROTO_UDP);
}

enum balance_quick {
	BALANCE_QUICK_OTHER, /* not so simple */
	BALANCE_QUICK_NONE, /* to no VIP */
	BALANCE_QUICK_FLOW, /* the flow is set */
};

static __always_inline enum balance_quick balance_quick_flow(const struct packet *pkt,
							     struct balance_packet *p)
{
	struct balance_vip_key key __attribute__((aligned(8))) = {};
	struct balance_vip vip __attribute__((aligned(8)));
	const void *ip = pkt->data + pkt->l3;
	__u32 l3_len = 20;

	barrier_var(ip);
	if (ip + 34 > pkt->data_end) /* as far as the flags of TCP behind IPv4 */
		return BALANCE_QUICK_OTHER;
	if (pkt->ip == 4) {
		balance_addresses(ip, true, &key, &p->flow);
	} else {
		if (ip + 54 > pkt->data_end)
			return BALANCE_QUICK_OTHER;
		balance_addresses(ip, false, &key, &p->flow);
		if (balance_mapped(&key, &p->flow))
			return BALANCE_QUICK_NONE;
		l3_len = 40;
	}
	if (!balance_ports(ip + l3_len, pkt->data_end, pkt->ip_len - l3_len, p, &key.port))
		return BALANCE_QUICK_OTHER;
	key.proto = p->proto;
	if (!balance_service(&key, &vip))
		return BALANCE_QUICK_NONE;
	if (vip.id_len)
		return BALANCE_QUICK_OTHER;
	balance_to(p, &vip);
	return BALANCE_QUICK_FLOW;
}

/*
 * Finds the owner, and sends the packet to it if the flow is known and all is well; then p->sent is set. Otherwise the
 * reason is that of balance_take.
 */
__noinline int balance_quick(struct xdp_md *ctx, struct balance_packet *p)
{
	struct balance_plain plain;
	struct balance_slot *slot;
	__u16 time, now;
	__u64 found;

	if (!balance_on || !p)
		return REASON_NONE;
	found = balance_glance(&p->flow);
	time = found >> 32;
	if (!found)
		return balance_choose(p, 0, false);
	now = balance_time();
	if (balance_over(p, time, now))
		return balance_choose(p, found, false);
	slot = balance_slot(found);
	if (!slot)
		return balance_choose(p, found, true);
	if (p->ip == 4 && p->l3 == ETH_HLEN && balance_plain(slot, found, p->ip_len, &plain)) {
		balance_seen(p, found, now);
		if (!balance_send_plain(ctx, p, &plain))
			return FWD_BALANCE;
		p->egress = plain.port;
	} else {
		struct balance_member m __attribute__((aligned(8)));

		if (!balance_copy(slot, found, &m) || !balance_keeps(&m, p->vip_flags))
			return balance_choose(p, found, true);
		if (balance_anew(p, time, now, m.flags))
			return balance_choose(p, found, false);
		balance_seen(p, found, now);
		if (!m.port || p->ip_len + balance_overhead(&m) > m.mtu ||
		    !balance_send(ctx, p, &m))
			return FWD_BALANCE;
		p->egress = m.port;
	}
	balance_count(p, FWD_BALANCE);
	p->sent = true;
	return FWD_BALANCE;
}

#endif
