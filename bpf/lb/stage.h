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
__noinline int lb_headers(struct xdp_md *ctx, struct lb_packet *p)
{
	struct lb_vip_key key __attribute__((aligned(8))) = {};
	void *ip, *data_end;
	__u32 head;

	if (!lb_on || !p)
		return REASON_NONE;
	data_end = (void *)(long)ctx->data_end;
	ip = lb_ip(ctx, p);
	if (p->ip == 4) {
		if (ip + 20 > data_end)
			return REASON_NONE;
		lb_addresses(ip, true, &key, &p->flow);
		key.proto = p->proto;
		head = (LOAD8(ip) & 15) * 4;
		if (LOAD16(ip + 6) & bpf_htons(0x1fff))
			return lb_any(&key) ? PUNT_LB_HEADERS : REASON_NONE;
	} else {
		if (ip + 48 > data_end)
			return REASON_NONE;
		lb_addresses(ip, false, &key, &p->flow);
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
		return lb_any(&key) ? PUNT_LB_HEADERS : REASON_NONE;
	ip += head;
	if (ip + 4 > data_end)
		return REASON_NONE;
	key.port = LOAD16(ip + 2);
	return lb_vip(&key) ? PUNT_LB_HEADERS : REASON_NONE;
}

/* A packet that is not simply one of a flow. FWD_LB_FLOW is for those that go where a whole packet would. */
static __always_inline int lb_other(struct xdp_md *ctx, struct lb_packet *p,
				    const struct lb_vip_key *key)
{
	if (p->odd)
		return p->odd == NO_FWD_OPTIONS ? lb_headers(ctx, p) : REASON_NONE;
	if (p->fragment || (p->ip == 6 && p->proto == IPPROTO_FRAGMENT))
		return lb_fragment(ctx, p, key);
	if (p->proto == (p->ip == 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6))
		return lb_icmp(ctx, p);
	return lb_headers(ctx, p);
}

/* Whether the connection ID of QUIC names the member. */
static __always_inline bool lb_by_id(struct xdp_md *ctx, struct lb_packet *p)
{
	p->owner = lb_quic(ctx, p);
	if (!p->owner || !lb_stays(p->owner, p->vip_flags))
		return false;
	lb_tell(&p->flow, p->owner, p->vip_flags);
	lb_event(p->flow.vip, LB_EVENT_QUIC);
	return true;
}

/* Says what is to become of a packet: REASON_NONE if it is to no VIP. Those to leave have an owner, or are answers. */
__noinline int lb_decide(struct xdp_md *ctx, struct lb_packet *p)
{
	struct lb_vip_key key __attribute__((aligned(8))) = {};
	struct lb_vip vip __attribute__((aligned(8)));
	void *ip, *l4, *data_end;
	__u32 l3_len = 20;
	int reason;

	if (!lb_on || !p)
		return REASON_NONE;
	data_end = (void *)(long)ctx->data_end;
	ip = lb_ip(ctx, p);
	barrier_var(ip);
	if (ip + 20 > data_end)
		return REASON_NONE;
	if (p->ip == 4) {
		lb_addresses(ip, true, &key, &p->flow);
	} else {
		if (ip + 40 > data_end)
			return REASON_NONE;
		lb_addresses(ip, false, &key, &p->flow);
		if (lb_mapped(&key, &p->flow))
			return REASON_NONE;
		l3_len = 40;
	}
	l4 = ip + l3_len;
	barrier_var(l4);
	if (p->odd || p->fragment || (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP) ||
	    !lb_ports(l4, data_end, p->ip_len - l3_len, p, &key.port)) {
		reason = lb_maybe(&key.addr) ? lb_other(ctx, p, &key) : REASON_NONE;
		if (reason != FWD_LB_FLOW)
			return reason;
	} else {
		key.proto = p->proto;
		if (!lb_service(&key, &vip))
			return REASON_NONE;
		p->id_len = vip.id_len;
		p->id_config = vip.id_config;
		lb_to(p, &vip);
	}
	if (p->id_len && lb_by_id(ctx, p))
		return FWD_LB_QUIC;
	reason = lb_take(p);
	if (p->more && reason >= REASON_FWD)
		lb_follow(p, &key);
	return reason;
}

/* Sends a packet to its member. It returns the reason that it leaves for. */
__noinline int lb_leave(struct xdp_md *ctx, struct lb_packet *p, int reason)
{
	struct lb_backend m __attribute__((aligned(8)));
	struct lb_slot *slot;

	if (!lb_on || !p)
		return DROP_LB_NEXT_HOP;
	slot = lb_slot(p->owner);
	if (!slot || !lb_copy(slot, p->owner, &m) || !m.port)
		return DROP_LB_NEXT_HOP;
	if (p->ip_len + lb_overhead(&m) > m.mtu) {
		p->mtu = m.mtu - lb_overhead(&m);
		return DROP_LB_TOO_BIG;
	}
	if (!lb_send(ctx, p, &m))
		return DROP_LB_NEXT_HOP;
	p->egress = m.port;
	lb_count(p, reason);
	return reason;
}

/* REASON_NONE for anything but a packet to a VIP. */
static __always_inline int lb_stage(struct xdp_md *ctx, struct packet *pkt)
{
	struct lb_packet p = {};
	int reason;

	if (!lb_on || !pkt->port || !pkt->ip || !lb_on_vlan(pkt))
		return REASON_NONE;
	p.ip_len = pkt->ip_len;
	p.odd = pkt->no_fwd_reason;
	p.vlan = pkt->vlan;
	p.l3 = pkt->l3;
	p.ip = pkt->ip;
	p.proto = pkt->proto;
	p.fragment = pkt->fragment;
	if (lb_simple(pkt)) {
		switch (lb_quick_flow(pkt, &p)) {
		case LB_QUICK_NONE:
			return REASON_NONE;
		case LB_QUICK_FLOW:
			reason = lb_quick(ctx, &p);
			if (p.sent) {
				pkt->egress = p.egress;
				return FWD_LB_FLOW;
			}
			if (reason <= REASON_NONE)
				return DROP_LB_NEXT_HOP; /* never, as below */
			break;
		default:
			reason = lb_decide(ctx, &p);
		}
	} else {
		reason = lb_decide(ctx, &p);
	}
	if (reason >= REASON_FWD && reason != XMIT_LB_ECHO) {
		reason = lb_leave(ctx, &p, reason);
		if (reason == DROP_LB_TOO_BIG && lb_too_big(ctx, &p))
			reason = XMIT_LB_TOO_BIG;
		if (reason < REASON_DROP)
			return DROP_LB_NEXT_HOP; /* never, but the verifier must not think that others are asked */
	}
	if (reason == PASS_LB_EMPTY || reason == PUNT_LB_HEADERS)
		reason = lb_unserved(ctx, pkt, reason);
	pkt->egress = p.egress;
	return reason;
}

#endif
