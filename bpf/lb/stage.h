/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_STAGE_H
#define CULVERT_LB_STAGE_H

#include "icmp_ptb.h"
#include "fragment.h"
#include "icmp.h"
#include "quic.h"
#include "fast.h"
#include "send.h"
#include "assign.h"
#include "unclaimed.h"

/*
 * The load balancer: packets to a VIP go to one of its backends, which answers to the client itself
 * (direct server return). What is to no VIP is not its.
 */

/* Headers between IP's and the transport's, or a transport header that is not all there: to a VIP or not? */
__noinline int balance_headers(struct xdp_md *ctx, struct balance_packet *p)
{
	struct balance_vip_key key __attribute__((aligned(8))) = {};
	void *ip, *data_end;
	__u32 head;

	if (!balance_on || !p)
		return REASON_NONE;
	data_end = (void *)(long)ctx->data_end;
	ip = balance_ip(ctx, p);
	if (p->ip == 4) {
		if (ip + 20 > data_end)
			return REASON_NONE;
		balance_addresses(ip, true, &key, &p->flow);
		key.proto = p->proto;
		head = (LOAD8(ip) & 15) * 4;
		if (LOAD16(ip + 6) & bpf_htons(0x1fff))
			return balance_any(&key) ? PUNT_BALANCE_HEADERS : REASON_NONE;
	} else {
		if (ip + 48 > data_end)
			return REASON_NONE;
		balance_addresses(ip, false, &key, &p->flow);
		key.proto = p->proto;
		head = 40;
		if (p->proto == IPPROTO_HOPOPTS || p->proto == IPPROTO_DSTOPTS) {
			key.proto = LOAD8(ip + 40);
			head += (LOAD8(ip + 41) + 1) * 8;
		}
	}
	if (key.proto != IPPROTO_TCP && key.proto != IPPROTO_UDP)
		return REASON_NONE;
	if (!p->odd && (p->proto == IPPROTO_TCP || p->proto == IPPROTO_UDP))
		return balance_any(&key) ? PUNT_BALANCE_HEADERS : REASON_NONE;
	ip += head;
	if (ip + 4 > data_end)
		return REASON_NONE;
	key.port = LOAD16(ip + 2);
	return balance_vip(&key) ? PUNT_BALANCE_HEADERS : REASON_NONE;
}

/* A packet that is not simply one of a flow. FWD_BALANCE is for those that go where a whole packet would. */
static __always_inline int balance_other(struct xdp_md *ctx, struct balance_packet *p,
					 const struct balance_vip_key *key)
{
	if (p->odd)
		return p->odd == NO_FWD_OPTIONS ? balance_headers(ctx, p) : REASON_NONE;
	if (p->fragment || (p->ip == 6 && p->proto == IPPROTO_FRAGMENT))
		return balance_fragment(ctx, p, key);
	if (p->proto == (p->ip == 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6))
		return balance_icmp(ctx, p);
	return balance_headers(ctx, p);
}

/* Whether the connection ID of QUIC names the member. */
static __always_inline bool balance_by_id(struct xdp_md *ctx, struct balance_packet *p)
{
	p->owner = balance_quic(ctx, p);
	if (!p->owner || !balance_stays(p->owner, p->vip_flags))
		return false;
	balance_tell(&p->flow, p->owner, p->vip_flags);
	balance_event(p->flow.vip, BALANCE_EVENT_QUIC);
	return true;
}

/* Says what is to become of a packet: REASON_NONE if it is to no VIP. Those to leave have an owner, or are answers. */
__noinline int balance_decide(struct xdp_md *ctx, struct balance_packet *p)
{
	struct balance_vip_key key __attribute__((aligned(8))) = {};
	struct balance_vip vip __attribute__((aligned(8)));
	void *ip, *l4, *data_end;
	__u32 l3_len = 20;
	int reason;

	if (!balance_on || !p)
		return REASON_NONE;
	data_end = (void *)(long)ctx->data_end;
	ip = balance_ip(ctx, p);
	barrier_var(ip);
	if (ip + 20 > data_end)
		return REASON_NONE;
	if (p->ip == 4) {
		balance_addresses(ip, true, &key, &p->flow);
	} else {
		if (ip + 40 > data_end)
			return REASON_NONE;
		balance_addresses(ip, false, &key, &p->flow);
		if (balance_mapped(&key, &p->flow))
			return REASON_NONE;
		l3_len = 40;
	}
	l4 = ip + l3_len;
	barrier_var(l4);
	if (p->odd || p->fragment || (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP) ||
	    !balance_ports(l4, data_end, p->ip_len - l3_len, p, &key.port)) {
		reason = balance_maybe(&key.addr) ? balance_other(ctx, p, &key) : REASON_NONE;
		if (reason != FWD_BALANCE)
			return reason;
	} else {
		key.proto = p->proto;
		if (!balance_service(&key, &vip))
			return REASON_NONE;
		p->id_len = vip.id_len;
		p->id_config = vip.id_config;
		balance_to(p, &vip);
	}
	if (p->id_len && balance_by_id(ctx, p))
		return FWD_BALANCE_QUIC;
	reason = balance_take(p);
	if (p->more && reason >= REASON_FWD)
		balance_follow(p, &key);
	return reason;
}

/* Sends a packet to its member. It returns the reason that it leaves for. */
__noinline int balance_leave(struct xdp_md *ctx, struct balance_packet *p, int reason)
{
	struct balance_member m __attribute__((aligned(8)));
	struct balance_slot *slot;

	if (!balance_on || !p)
		return DROP_BALANCE_NEXT_HOP;
	slot = balance_slot(p->owner);
	if (!slot || !balance_copy(slot, p->owner, &m) || !m.port)
		return DROP_BALANCE_NEXT_HOP;
	if (p->ip_len + balance_overhead(&m) > m.mtu) {
		p->mtu = m.mtu - balance_overhead(&m);
		return DROP_BALANCE_TOO_BIG;
	}
	if (!balance_send(ctx, p, &m))
		return DROP_BALANCE_NEXT_HOP;
	p->egress = m.port;
	balance_count(p, reason);
	return reason;
}

/* REASON_NONE for anything but a packet to a VIP. */
static __always_inline int lb_stage(struct xdp_md *ctx, struct packet *pkt)
{
	struct balance_packet p = {};
	int reason;

	if (!balance_on || !pkt->port || !pkt->ip || !balance_on_vlan(pkt))
		return REASON_NONE;
	p.ip_len = pkt->ip_len;
	p.odd = pkt->no_fwd_reason;
	p.vlan = pkt->vlan;
	p.l3 = pkt->l3;
	p.ip = pkt->ip;
	p.proto = pkt->proto;
	p.fragment = pkt->fragment;
	if (balance_simple(pkt)) {
		switch (balance_quick_flow(pkt, &p)) {
		case BALANCE_QUICK_NONE:
			return REASON_NONE;
		case BALANCE_QUICK_FLOW:
			reason = balance_quick(ctx, &p);
			if (p.sent) {
				pkt->egress = p.egress;
				return FWD_BALANCE;
			}
			if (reason <= REASON_NONE)
				return DROP_BALANCE_NEXT_HOP; /* never, as below */
			break;
		default:
			reason = balance_decide(ctx, &p);
		}
	} else {
		reason = balance_decide(ctx, &p);
	}
	if (reason >= REASON_FWD && reason != XMIT_BALANCE_ECHO) {
		reason = balance_leave(ctx, &p, reason);
		if (reason == DROP_BALANCE_TOO_BIG && balance_too_big(ctx, &p))
			reason = XMIT_BALANCE_TOO_BIG;
		if (reason < REASON_DROP)
			return DROP_BALANCE_NEXT_HOP; /* never, but the verifier must not think that others are asked */
	}
	if (reason == PASS_BALANCE_EMPTY || reason == PUNT_BALANCE_HEADERS)
		reason = balance_unserved(ctx, pkt, reason);
	pkt->egress = p.egress;
	return reason;
}

#endif
