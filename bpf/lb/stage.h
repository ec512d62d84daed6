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
 * The load balancer. Packets to a VIP go to one of its backends, which answers the client itself (direct server
 * return). Packets to no VIP are not the stage's.
 */

/*
 * Decides on packets with headers between the IP header and the transport header, or with a truncated transport header.
 * Those to a VIP are punted.
 */
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
			return lb_vip_any_port(&key) ? PUNT_LB_HEADERS : REASON_NONE;
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
	if (!p->no_fwd_reason && (p->proto == IPPROTO_TCP || p->proto == IPPROTO_UDP))
		return lb_vip_any_port(&key) ? PUNT_LB_HEADERS : REASON_NONE;
	ip += head;
	if (ip + 4 > data_end)
		return REASON_NONE;
	key.port = LOAD16(ip + 2);
	return lb_vip(&key) ? PUNT_LB_HEADERS : REASON_NONE;
}

/*
 * Decides on packets other than unfragmented TCP and UDP. FWD_LB_FLOW means that the packet goes where an unfragmented
 * packet would.
 */
static __always_inline int lb_decide_other(struct xdp_md *ctx, struct lb_packet *p,
					   const struct lb_vip_key *key)
{
	if (p->no_fwd_reason)
		return p->no_fwd_reason == NO_FWD_OPTIONS ? lb_headers(ctx, p) : REASON_NONE;
	if (p->fragment || (p->ip == 6 && p->proto == IPPROTO_FRAGMENT))
		return lb_fragment(ctx, p, key);
	if (p->proto == (p->ip == 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6))
		return lb_icmp(ctx, p);
	return lb_headers(ctx, p);
}

/* Assigns the backend that QUIC's connection ID names. */
static __always_inline bool lb_quic_assign(struct xdp_md *ctx, struct lb_packet *p)
{
	p->backend = lb_quic(ctx, p);
	if (!p->backend || !lb_backend_valid(p->backend, p->vip_flags))
		return false;
	lb_quic_learn(&p->flow, p->backend, p->vip_flags);
	lb_event(p->flow.vip, LB_EVENT_QUIC);
	return true;
}

/*
 * Decides on a packet. Returns REASON_NONE if it is to no VIP. If the packet is to be forwarded, p->backend is set. If
 * it is answered, it has been turned into the answer.
 */
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
	if (p->no_fwd_reason || p->fragment ||
	    (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP) ||
	    !lb_ports(l4, data_end, p->ip_len - l3_len, p, &key.port)) {
		reason = lb_vip_maybe(&key.addr) ? lb_decide_other(ctx, p, &key) : REASON_NONE;
		if (reason != FWD_LB_FLOW)
			return reason;
	} else {
		key.proto = p->proto;
		if (!lb_vip_lookup_fast(&key, &vip))
			return REASON_NONE;
		p->id_len = vip.id_len;
		p->id_config = vip.id_config;
		lb_flow_set_vip(p, &vip);
	}
	if (p->id_len && lb_quic_assign(ctx, p))
		return FWD_LB_QUIC;
	reason = lb_flow_assign(p);
	if (p->more && reason >= REASON_FWD)
		lb_fragment_record(p, &key);
	return reason;
}

/* Sends a packet to its backend. Returns the reason that it leaves for. */
__noinline int lb_forward(struct xdp_md *ctx, struct lb_packet *p, int reason)
{
	struct lb_backend backend __attribute__((aligned(8)));
	struct lb_backend_latch *latch;
	struct lb_plain plain;

	if (!lb_on || !p)
		return DROP_LB_NEXT_HOP;
	latch = lb_backend_lookup(p->backend);
	if (!straight_off && latch && p->ip == 4 && p->l3 == ETH_HLEN && !p->fragment &&
	    lb_plain(latch, p->backend, p->ip_len, &plain) && lb_send_plain(ctx, p, &plain)) {
		p->egress = plain.port;
		lb_count(p, reason);
		return reason;
	}
	if (!latch || !lb_backend_read(latch, p->backend, &backend) || !backend.hop.port)
		return DROP_LB_NEXT_HOP;
	if (p->ip_len + lb_overhead(&backend) > backend.hop.mtu) {
		p->mtu = backend.hop.mtu - lb_overhead(&backend);
		return DROP_LB_TOO_BIG;
	}
	if (!lb_send(ctx, p, &backend))
		return DROP_LB_NEXT_HOP;
	p->egress = backend.hop.port;
	lb_count(p, reason);
	return reason;
}

/* The stage. Returns REASON_NONE for anything but a packet to a VIP. */
static __always_inline int lb_stage(struct xdp_md *ctx, struct packet *pkt)
{
	struct lb_packet p;
	int reason;

	if (!lb_on || !pkt->port || !pkt->ip || !lb_vlan_accepted(pkt))
		return REASON_NONE;
	/* Most packets have their flow set in a moment. */
	_Static_assert(offsetof(struct lb_packet, backend) == sizeof(p.flow), "the flow is first");
	__builtin_memset(&p.backend, 0, sizeof(p) - sizeof(p.flow));
	p.ip_len = pkt->ip_len;
	p.no_fwd_reason = pkt->no_fwd_reason;
	p.vlan = pkt->vlan;
	p.l3 = pkt->l3;
	p.ip = pkt->ip;
	p.proto = pkt->proto;
	p.fragment = pkt->fragment;
	if (lb_fast_eligible(pkt)) {
		switch (lb_fast_flow(pkt, &p)) {
		case LB_FAST_NONE:
			return REASON_NONE;
		case LB_FAST_FLOW:
			reason = lb_fast(ctx, &p);
			if (reason == LB_FAST_SENT) {
				pkt->egress = p.egress;
				return FWD_LB_FLOW;
			}
			if (reason <= REASON_NONE)
				reason = lb_fast_assigned(&p, reason);
			if (reason <= REASON_NONE)
				return DROP_LB_NEXT_HOP; /* never, as below */
			break;
		default:
			p.flow = (struct lb_flow){};
			reason = lb_decide(ctx, &p);
		}
	} else {
		p.flow = (struct lb_flow){};
		reason = lb_decide(ctx, &p);
	}
	if (reason >= REASON_FWD && reason != XMIT_LB_ECHO) {
		reason = lb_forward(ctx, &p, reason);
		if (reason == DROP_LB_TOO_BIG && lb_icmp_ptb(ctx, &p))
			reason = XMIT_LB_TOO_BIG;
		if (reason < REASON_DROP)
			return DROP_LB_NEXT_HOP; /* never, but the verifier must see that no further stage runs */
	}
	if (reason == PASS_LB_EMPTY || reason == PUNT_LB_HEADERS)
		reason = lb_unserved(ctx, pkt, reason);
	pkt->egress = p.egress;
	return reason;
}

#endif
