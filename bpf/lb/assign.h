/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_ASSIGN_H
#define CULVERT_LB_ASSIGN_H

#include "vip.h"

/* Selects the backend of a packet: by the flow table, or else by the ring. */

/* TCP flags, as they stand in the 16 bits at byte 12 of the header. */
#define LB_TCP_SYN bpf_htons(2)
#define LB_TCP_ACK bpf_htons(16)
#define LB_TCP_END bpf_htons(1 | 4) /* FIN, RST */

/*
 * The state of a packet in this stage. It has no pointers, so that global functions can take it: the verifier checks a
 * global function once, and not again for each path to a call.
 */
struct lb_packet {
	struct lb_flow flow;
	__u32 backend; /* ID of the backend that the packet goes to */
	__u32 egress; /* index of the interface that it is redirected to */
	__u32 ip_len; /* this and the next six are as in struct packet */
	__u16 no_fwd_reason;
	__u16 vlan;
	__u8 l3;
	__u8 ip;
	__u8 proto;
	__u8 fragment;
	__be16 tcp; /* the 16 bits at byte 12 of the TCP header: its length, and flags */
	__u8 vip_flags;
	__u8 id_len; /* this and the next one are as in struct lb_vip */
	__u8 id_config;
	__u8 more; /* more fragments follow */
	__u8 quiet; /* no ICMP error is sent if the packet does not fit */
	__u32 mtu; /* if the packet does not fit: the longest IP packet that would, bytes */
	__be32 id; /* identification of the datagram, for a fragment */
	__u32 seen; /* for lb_assign: the upper half of what lb_flow_lookup has found; the lower half is backend */
};

/* Where the packet's IP header is. The verifier needs a constant offset. */
static __always_inline void *lb_ip(struct xdp_md *ctx, const struct lb_packet *p)
{
	void *data = (void *)(long)ctx->data;

	return p->l3 == ETH_HLEN ? data + ETH_HLEN : data + ETH_HLEN + VLAN_HLEN;
}

/*
 * Reads the addresses of a packet: the destination into the VIP's key, the client's into the flow. The caller has
 * checked that the packet has the whole header at ip.
 */
static __always_inline void lb_addresses(const void *ip, bool v4, struct lb_vip_key *key,
					 struct lb_flow *f)
{
	if (v4) {
		STORE64(&key->addr.w[2], (__u64)LOAD32(ip + 16) << 32 | IP4_MAPPED);
		f->src[0] = 0;
		f->src[1] = (__u64)LOAD32(ip + 12) << 32 | IP4_MAPPED;
		return;
	}
	STORE64(&key->addr.w[0], LOAD64(ip + 24));
	STORE64(&key->addr.w[2], LOAD64(ip + 32));
	f->src[0] = LOAD64(ip + 8);
	f->src[1] = LOAD64(ip + 16);
}

/*
 * Whether the source or the destination of an IPv6 packet is IPv4-mapped (RFC 4291, 2.5.5.2). No VIP and no host has
 * such an address.
 */
static __always_inline bool lb_mapped(const struct lb_vip_key *key, const struct lb_flow *f)
{
	return (!f->src[0] && (__u32)f->src[1] == IP4_MAPPED) ||
	       (!LOAD64(&key->addr.w[0]) && (__u32)LOAD64(&key->addr.w[2]) == IP4_MAPPED);
}

/*
 * Reads ports and TCP flags. False if the transport header is truncated. len is the length of that header and what
 * follows it, bytes.
 */
static __always_inline bool lb_ports(const void *l4, const void *data_end, __u32 len,
				     struct lb_packet *p, __be16 *dport)
{
	if (len < (p->proto == IPPROTO_TCP ? 20 : 8) || l4 + 8 > data_end)
		return false;
	p->flow.ports = LOAD32(l4);
	*dport = LOAD16(l4 + 2);
	p->tcp = 0;
	if (p->proto == IPPROTO_TCP) {
		if (l4 + 14 > data_end)
			return false;
		p->tcp = LOAD16(l4 + 12);
	}
	return true;
}

static __always_inline void lb_flow_set_vip(struct lb_packet *p, const struct lb_vip *vip)
{
	p->flow.vip = vip->number;
	p->vip_flags = vip->flags;
	lb_flow_hash(&p->flow);
}

static __always_inline void lb_count(const struct lb_packet *p, int reason)
{
	__u32 number = p->backend & LB_NUMBER;
	struct lb_backend_counters *t = bpf_map_lookup_elem(&lb_traffic, &number);

	if (!t)
		return;
	t->packets++;
	t->bytes += p->ip_len;
	if (reason == FWD_LB_NEW)
		t->flows++;
}

/* Whether a segment of TCP has data. */
static __always_inline bool lb_tcp_has_data(const struct lb_packet *p)
{
	__u32 head = p->ip == 4 ? 20 : p->fragment ? 48 : 40;

	head += (bpf_ntohs(p->tcp) >> 12) * 4;
	return p->ip_len > head;
}

/*
 * Returns time and state of a TCP flow after a packet. lb_flow_state_next handles the most common case, a segment of an
 * open flow without SYN, FIN and RST. TCP windows are not known here, so a FIN, RST or SYN may be forged, and later
 * packets decide. After FIN or RST, data or a late segment opens the flow again, but more FINs and RSTs do not prolong
 * it. A SYN for a closing flow means that the client uses the port again: it restarts the flow's time, and data opens
 * the flow. A SYN for an open flow changes nothing.
 */
__noinline int lb_tcp_state(const struct lb_packet *p, __u32 time, __u32 now)
{
	__u32 state = time & 3;

	if (!lb_on || !p)
		return time;
	if (state == LB_FLOW_CLOSING) {
		if (p->tcp & LB_TCP_END)
			return time;
		if (p->tcp & LB_TCP_SYN)
			return now | LB_FLOW_CLOSING;
		if (lb_tcp_has_data(p) || lb_age(time, now) >= LB_LINGER)
			return now | LB_FLOW_OPEN;
		return time;
	}
	if (p->tcp & LB_TCP_END)
		return now | LB_FLOW_CLOSING;
	if (p->tcp & LB_TCP_SYN)
		return state == LB_FLOW_NEW ? now | LB_FLOW_NEW : time;
	return now | LB_FLOW_OPEN;
}

/* Returns time and state of a flow after a packet. */
static __always_inline __u16 lb_flow_state_next(const struct lb_packet *p, __u16 time, __u16 now)
{
	if (p->proto == IPPROTO_UDP)
		return now | LB_FLOW_UDP;
	if ((time & 3) == LB_FLOW_OPEN && !(p->tcp & (LB_TCP_END | LB_TCP_SYN)))
		return now | LB_FLOW_OPEN;
	return lb_tcp_state(p, time, now);
}

/*
 * Whether a packet continues a closing flow although the idle time of closing flows is over. Without this, a forged FIN
 * would end any flow that is idle for a minute. The entry counts for the idle time of open flows, unless another flow
 * evicts it.
 */
__noinline int lb_tcp_resumes(const struct lb_packet *p, __u32 time, __u32 now)
{
	if (!lb_on || !p)
		return 0;
	return (time & 3) == LB_FLOW_CLOSING && p->proto == IPPROTO_TCP &&
	       !(p->tcp & (LB_TCP_END | LB_TCP_SYN)) && lb_age(time, now) < lb_idle[LB_FLOW_OPEN];
}

/* Whether the entry of a flow is out of date for a packet. */
static __always_inline bool lb_flow_expired(const struct lb_packet *p, __u16 time, __u16 now)
{
	return lb_time_expired(time, now) && !lb_tcp_resumes(p, time, now);
}

/*
 * Whether a flow has not been used lately. A SYN moves only such flows to another backend, because the SYN may be
 * forged and the backend may be alive.
 */
static __always_inline bool lb_flow_unused(__u16 time, __u16 now)
{
	__u32 state = time & 3;

	return state == LB_FLOW_NEW ||
	       lb_age(time, now) >= (state == LB_FLOW_CLOSING ? LB_LINGER : LB_SPARE);
}

/* Whether a packet tries again to connect to a backend that is down, and its flow is not in use. */
static __always_inline bool lb_syn_retry(const struct lb_packet *p, __u16 time, __u16 now,
					 __u32 backend_flags)
{
	return backend_flags & LB_BACKEND_DOWN &&
	       (p->tcp & (LB_TCP_SYN | LB_TCP_ACK)) == LB_TCP_SYN && lb_flow_unused(time, now);
}

/*
 * Assigns a backend to the first packet of a flow, or another backend to a flow that the table has. was is the result
 * of lb_flow_lookup, 0 for a new flow. gone says that the flow's backend has gone.
 */
__noinline int lb_assign(struct lb_packet *p, __u64 was, int gone)
{
	__u32 id, has;
	bool syn;

	if (!lb_on || !p)
		return REASON_NONE -
		       1; /* otherwise clang knows that no result is negative, and the verifier does not */
	syn = p->proto == IPPROTO_TCP && (p->tcp & (LB_TCP_SYN | LB_TCP_ACK)) == LB_TCP_SYN;
	id = lb_ring_lookup(&p->flow, p->vip_flags, p->proto);
	if (!id || !lb_backend_valid(id, 0)) {
		lb_event(p->flow.vip, LB_EVENT_EMPTY);
		return PASS_LB_EMPTY;
	}
	p->backend = id;
	if (was)
		has = lb_flow_reassign(&p->flow, was, id);
	else
		has = lb_flow_insert(&p->flow, id, syn);
	if (has == id) {
		if (gone && id != (__u32)was)
			lb_event(p->flow.vip, LB_EVENT_MOVED);
		return FWD_LB_NEW;
	}
	/* Another CPU has written the flow first, with a backend of another ring. */
	if (has && lb_backend_valid(has, p->vip_flags)) {
		p->backend = has;
		return FWD_LB_FLOW;
	}
	lb_event(p->flow.vip, LB_EVENT_UNTRACKED);
	return FWD_LB_UNTRACKED;
}

/*
 * Sets the backend of a packet of a known flow, and updates the flow's time and state. found is the result of
 * lb_flow_lookup.
 */
static __always_inline void lb_flow_seen(struct lb_packet *p, __u64 found, __u16 now)
{
	__u16 time = found >> 32, next = lb_flow_state_next(p, time, now);

	if (next != time)
		lb_flow_touch(&p->flow, found >> 48, next);
	p->backend = found;
}

/* Finds the backend of a packet of TCP or UDP, and assigns one to a new flow. */
static __always_inline int lb_flow_assign(struct lb_packet *p)
{
	__u64 found = lb_flow_lookup(&p->flow);
	__u16 time = found >> 32, now;

	if (!found)
		return lb_assign(p, 0, false);
	now = lb_time();
	if (lb_flow_expired(p, time, now))
		return lb_assign(p, found, false);
	if (!lb_backend_valid(found, p->vip_flags))
		return lb_assign(p, found, true);
	if (lb_syn_retry(p, time, now, lb_backend_valid(found, LB_VIP_MOVE) ? 0 : LB_BACKEND_DOWN))
		return lb_assign(p, found, false);
	lb_flow_seen(p, found, now);
	return FWD_LB_FLOW;
}

#endif
