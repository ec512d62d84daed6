/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_ASSIGN_H
#define CULVERT_LB_ASSIGN_H

#include "vip.h"

/* Which backend a packet of a flow goes to: by the flow table, or else by the ring. */

/* Flags in bytes 12 and 13 of TCP's header. */
#define LB_TCP_SYN bpf_htons(2)
#define LB_TCP_ACK bpf_htons(16)
#define LB_TCP_END bpf_htons(1 | 4) /* FIN, RST */

/*
 * What is known of a packet. No pointers: the functions that have it are verified by themselves, which keeps the
 * verifier from following each of their ways through the rest of the program.
 */
struct lb_packet {
	struct lb_flow flow;
	__u32 backend; /* that it goes to */
	__u32 egress; /* index of the interface that it is redirected to */
	__u32 ip_len; /* as in struct packet, and so the next six */
	__u16 no_fwd_reason;
	__u16 vlan;
	__u8 l3;
	__u8 ip;
	__u8 proto;
	__u8 fragment;
	__be16 tcp; /* bytes 12 and 13 of TCP's header: its length, and flags */
	__u8 vip_flags;
	__u8 id_len; /* of the VIP, and so the next one */
	__u8 id_config;
	__u8 more; /* fragments follow */
	__u8 quiet; /* nobody is told if it does not fit */
	__u8 sent; /* it has left already */
	__u32 mtu; /* of the packet itself, to the backend that it is too big for */
	__be32 id; /* of the datagram, of a fragment */
};

/* Where the packet's IP header is; the verifier likes constants. */
static __always_inline void *lb_ip(struct xdp_md *ctx, const struct lb_packet *p)
{
	void *data = (void *)(long)ctx->data;

	return p->l3 == ETH_HLEN ? data + ETH_HLEN : data + ETH_HLEN + VLAN_HLEN;
}

/* Addresses of a packet, the destination into the VIP's key and the client's into the flow; ip has a whole header. */
static __always_inline void lb_addresses(const void *ip, bool v4, struct lb_vip_key *key,
					 struct lb_flow *f)
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
static __always_inline bool lb_mapped(const struct lb_vip_key *key, const struct lb_flow *f)
{
	return (!f->src[0] && (__u32)f->src[1] == IP4_MAPPED) ||
	       (!(key->addr.w[0] | key->addr.w[1]) && key->addr.w[2] == IP4_MAPPED);
}

/* Ports and flags; false if the header is not there. len is of the transport header and what follows it. */
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
 * The time and state of a flow of TCP after a packet that is not just one more of an open flow. Nobody here knows windows,
 * so FIN, RST and SYN may be forged: what follows decides. After FIN or RST, data or a late segment opens the flow
 * again; more of FIN or RST does not keep it. A SYN gives it the time of a closed flow once more, as the port is used
 * again: data opens it then. To an open flow a SYN means nothing.
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

/* The time and state of a flow after a packet. */
static __always_inline __u16 lb_flow_state_next(const struct lb_packet *p, __u16 time, __u16 now)
{
	if (p->proto == IPPROTO_UDP)
		return now | LB_FLOW_UDP;
	if ((time & 3) == LB_FLOW_OPEN && !(p->tcp & (LB_TCP_END | LB_TCP_SYN)))
		return now | LB_FLOW_OPEN;
	return lb_tcp_state(p, time, now);
}

/*
 * Whether a packet goes on with a flow after FIN or RST, though the time of a closed one is over: forged, they would
 * else end any flow that is idle for a minute. Until another flow needs its place, it counts for as long as an open one.
 */
__noinline int lb_tcp_resumes(const struct lb_packet *p, __u32 time, __u32 now)
{
	if (!lb_on || !p)
		return 0;
	return (time & 3) == LB_FLOW_CLOSING && p->proto == IPPROTO_TCP &&
	       !(p->tcp & (LB_TCP_END | LB_TCP_SYN)) && lb_age(time, now) < lb_idle[LB_FLOW_OPEN];
}

/* Whether the entry of a flow does not count any more for a packet. */
static __always_inline bool lb_flow_expired(const struct lb_packet *p, __u16 time, __u16 now)
{
	return lb_time_expired(time, now) && !lb_tcp_resumes(p, time, now);
}

/* Whether nobody has used a flow lately: a forged SYN must not take it away from a backend that may live. */
static __always_inline bool lb_flow_unused(__u16 time, __u16 now)
{
	__u32 state = time & 3;

	return state == LB_FLOW_NEW ||
	       lb_age(time, now) >= (state == LB_FLOW_CLOSING ? LB_LINGER : LB_SPARE);
}

/* Whether a packet is one more try to reach a backend that does not answer, with no flow that anybody has to keep. */
static __always_inline bool lb_syn_retry(const struct lb_packet *p, __u16 time, __u16 now,
					 __u32 member_flags)
{
	return member_flags & LB_BACKEND_DOWN &&
	       (p->tcp & (LB_TCP_SYN | LB_TCP_ACK)) == LB_TCP_SYN && lb_flow_unused(time, now);
}

/*
 * Finds the backend for the first packet of a flow, or another one for a flow that the table has: then was is what lb_flow_lookup
 * says, and gone is whether its backend has gone.
 */
static __noinline int lb_assign(struct lb_packet *p, __u64 was, bool gone)
{
	bool syn = p->proto == IPPROTO_TCP && (p->tcp & (LB_TCP_SYN | LB_TCP_ACK)) == LB_TCP_SYN;
	__u32 id = lb_ring_lookup(&p->flow, p->vip_flags, p->proto), has;

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
	/* Another CPU was faster, and has read another ring. */
	if (has && lb_backend_valid(has, p->vip_flags)) {
		p->backend = has;
		return FWD_LB_FLOW;
	}
	lb_event(p->flow.vip, LB_EVENT_UNTRACKED);
	return FWD_LB_UNTRACKED;
}

/* Has a packet go to the backend of its flow, which the table has as lb_flow_lookup says. */
static __always_inline void lb_flow_seen(struct lb_packet *p, __u64 found, __u16 now)
{
	__u16 time = found >> 32, next = lb_flow_state_next(p, time, now);

	if (next != time)
		lb_flow_touch(&p->flow, found >> 48, next);
	p->backend = found;
}

/* Finds the backend of a packet of TCP or UDP. */
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
