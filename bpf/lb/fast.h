/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_FAST_H
#define CULVERT_LB_FAST_H

#include "core/straight.h"

#include "send_fast.h"
#include "send.h"
#include "assign.h"

/*
 * The fast path of most packets: unfragmented TCP and UDP, of a flow that the table has, to a backend that is up. It
 * repeats lb_decide and lb_forward for these packets alone, and takes a hundred instructions less.
 */

/* Whether a packet is unfragmented TCP or UDP without IP options or extension headers. */
static __always_inline bool lb_fast_eligible(const struct packet *pkt)
{
	return !straight_off && !pkt->no_fwd_reason && !pkt->fragment &&
	       (pkt->proto == IPPROTO_TCP || pkt->proto == IPPROTO_UDP);
}

enum lb_fast {
	LB_FAST_OTHER, /* lb_decide handles the packet */
	LB_FAST_NONE, /* the packet is to no VIP */
	LB_FAST_FLOW, /* the packet is to a VIP; the flow is set */
};

static __always_inline enum lb_fast lb_fast_flow(const struct packet *pkt, struct lb_packet *p)
{
	struct lb_vip_key key __attribute__((aligned(8))) = {};
	struct lb_vip vip __attribute__((aligned(8)));
	const void *ip = pkt->data + pkt->l3;
	__u32 l3_len = 20;

	barrier_var(ip);
	if (ip + 34 > pkt->data_end) /* up to the flags of TCP behind IPv4 */
		return LB_FAST_OTHER;
	if (pkt->ip == 4) {
		lb_addresses(ip, true, &key, &p->flow);
	} else {
		if (ip + 54 > pkt->data_end)
			return LB_FAST_OTHER;
		lb_addresses(ip, false, &key, &p->flow);
		if (lb_mapped(&key, &p->flow))
			return LB_FAST_NONE;
		l3_len = 40;
	}
	if (!lb_ports(ip + l3_len, pkt->data_end, pkt->ip_len - l3_len, p, &key.port))
		return LB_FAST_OTHER;
	key.proto = p->proto;
	if (!lb_vip_lookup_fast(&key, &vip))
		return LB_FAST_NONE;
	if (vip.id_len)
		return LB_FAST_OTHER;
	lb_flow_set_vip(p, &vip);
	return LB_FAST_FLOW;
}

/* What lb_fast returns in the place of a reason if it has sent the packet, or if the packet needs a backend. */
enum lb_fast_result {
	LB_FAST_SENT = REASON_NONE - 2,
	LB_FAST_GONE = REASON_NONE - 1, /* the flow's backend has gone */
	LB_FAST_ASSIGN = REASON_NONE,
};

/* Leaves it to the caller to assign a backend, because a chain of calls has 512 bytes of stack in all. */
static __always_inline int lb_fast_assign(struct lb_packet *p, __u64 found,
					  enum lb_fast_result result)
{
	p->backend = found;
	p->seen = found >> 32;
	return result;
}

/*
 * Sends a packet of a known flow to its backend, if the packet fits. Otherwise it returns the reason, or says that
 * lb_fast_assigned finds the backend.
 */
__noinline int lb_fast(struct xdp_md *ctx, struct lb_packet *p)
{
	struct lb_plain plain;
	struct lb_backend_latch *latch;
	__u16 time, now;
	__u64 found;

	if (!lb_on || !p)
		return REASON_NONE;
	found = lb_flow_lookup_fast(&p->flow);
	time = found >> 32;
	if (!found)
		return LB_FAST_ASSIGN;
	now = lb_time();
	if (lb_flow_expired(p, time, now))
		return lb_fast_assign(p, found, LB_FAST_ASSIGN);
	latch = lb_backend_lookup(found);
	if (!latch)
		return lb_fast_assign(p, found, LB_FAST_GONE);
	if (p->ip == 4 && p->l3 == ETH_HLEN && lb_plain(latch, found, p->ip_len, &plain)) {
		lb_flow_seen(p, found, now);
		if (!lb_send_plain(ctx, p, &plain))
			return FWD_LB_FLOW;
		p->egress = plain.port;
	} else {
		struct lb_backend backend __attribute__((aligned(8)));

		if (!lb_backend_read(latch, found, &backend) ||
		    !lb_flow_sticky(&backend, p->vip_flags))
			return lb_fast_assign(p, found, LB_FAST_GONE);
		if (lb_syn_retry(p, time, now, backend.flags))
			return lb_fast_assign(p, found, LB_FAST_ASSIGN);
		lb_flow_seen(p, found, now);
		if (!backend.hop.port || p->ip_len + lb_overhead(&backend) > backend.hop.mtu ||
		    !lb_send(ctx, p, &backend))
			return FWD_LB_FLOW;
		p->egress = backend.hop.port;
	}
	lb_count(p, FWD_LB_FLOW);
	return LB_FAST_SENT;
}

/* Assigns the backend of a packet for which lb_fast has returned result. */
static __always_inline int lb_fast_assigned(struct lb_packet *p, int result)
{
	return lb_assign(p, p->backend | (__u64)p->seen << 32, result == LB_FAST_GONE);
}

#endif
