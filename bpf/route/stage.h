/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_ROUTE_STAGE_H
#define CULVERT_ROUTE_STAGE_H

#include "choice.h"
#include "fib.h"
#include "hop.h"
#include "send.h"
#include "source.h"
#include "straight.h"

/*
 * The IP router. It forwards what Linux would forward, as Linux would (ip_rcv, ip_forward, ip6_forward),
 * and leaves the rest to the kernel.
 */

_Static_assert(offsetof(struct route_state, until6) == offsetof(struct route_state, until4) + 8 &&
		       offsetof(struct route_state, kernel6) ==
			       offsetof(struct route_state, kernel4) + 1 &&
		       ROUTE_DEV_FORWARD6 == ROUTE_DEV_FORWARD4 << 1,
	       "what is for IPv6 is behind what is for IPv4");

/* 0 for IPv4, 1 for IPv6, without a branch: each doubles the ways that the verifier follows. */
static __always_inline __u32 route_family(const struct packet *pkt)
{
	return pkt->ip >> 1 & 1;
}

/*
 * Finds the device that the packet came in by. Returns false if the kernel would not forward from there. The values are read here, so
 * that the verifier forgets which map they are from.
 */
static __always_inline bool route_in(const struct packet *pkt, struct route_from *from)
{
	const struct route_dev *in = &pkt->port->route;

	if (pkt->vlan) {
		struct route_vlan key = {.port = in->index, .tag = pkt->vlan};

		in = bpf_map_lookup_elem(&route_vlans, &key);
		if (!in)
			return false;
		if (LOAD32(pkt->data) != LOAD32(in->mac) || LOAD16(pkt->data + 4) != in->mac[2])
			return false;
	}
	from->index = *(volatile const __u32 *)&in->index;
	from->flags = *(volatile const __u8 *)&in->flags;
	return from->flags & ROUTE_DEV_FORWARD4 << route_family(pkt);
}

/* Returns the reason for a destination or a source that is never forwarded, whatever the tables say. */
static __always_inline int route_check4(__be32 src, __be32 dst)
{
	__u8 s = src & 0xff, d = dst & 0xff;

	if (d >= 224 && d < 240)
		return PUNT_ROUTE_MULTICAST;
	if (dst == 0xffffffff)
		return PASS_ROUTE_LOCAL;
	if (!dst || d == 127)
		return PUNT_ROUTE_MARTIAN;
	if (!src || s == 127 || (s >= 224 && s < 240) || src == 0xffffffff)
		return PUNT_ROUTE_MARTIAN;
	return REASON_NONE;
}

static __always_inline int route_check6_dst(__u64 high)
{
	if (high >> 56 == 0xff)
		return PUNT_ROUTE_MULTICAST;
	/* Link-local addresses are not routed (RFC 4291, 2.5.6). Neighbors and routing daemons use them. */
	if (high >> 54 == 0xfe80 >> 6)
		return PASS_ROUTE_LOCAL;
	return high ? REASON_NONE : PUNT_ROUTE_MARTIAN; /* loopback, mapped IPv4 addresses */
}

/* Returns the reason for a source of IPv6 that is never forwarded. Packets with such a source may be to this host. */
static __always_inline int route_source6(const struct packet *pkt)
{
	const void *ip = pkt->data + pkt->l3;
	__u64 high;

	barrier_var(ip); /* to keep the address meanwhile would take stack */
	if (ip + 40 > pkt->data_end)
		return PUNT_ROUTE_MALFORMED;
	high = bpf_be64_to_cpu(LOAD64(ip + 8));
	if (high >> 54 == 0xfe80 >> 6 || high >> 56 == 0xff || !high)
		return PUNT_ROUTE_MARTIAN;
	return REASON_NONE;
}

/*
 * Returns the reason for a next hop that leads nowhere; REASON_NONE for one that forwards, or that the kernel has to
 * look up.
 */
static __always_inline int route_hop_reason(__u8 action)
{
	switch (action) {
	case ROUTE_LOCAL:
		return PASS_ROUTE_LOCAL;
	case ROUTE_NONE:
		return PUNT_ROUTE_NONE;
	case ROUTE_UNREACHABLE:
		return PUNT_ROUTE_UNREACHABLE;
	case ROUTE_PROHIBIT:
		return PUNT_ROUTE_PROHIBIT;
	case ROUTE_BLACKHOLE:
		return DROP_ROUTE_BLACKHOLE;
	case ROUTE_RESOLVE:
		return PUNT_ROUTE_NEIGHBOR;
	case ROUTE_ELSEWHERE:
		return PASS_ROUTE_EGRESS;
	}
	return REASON_NONE;
}

/*
 * Takes the next hop that the kernel has chosen before for the flow of a packet, and returns true. If the kernel has to be asked, the
 * notes say under what its answer may be remembered. to has the next hop that the mirror has found.
 */
static __noinline bool route_recall(const struct packet *pkt, const struct route_state *st,
				    struct route_hop *to)
{
	__u8 policy = pkt->ip == 4 ? st->hash4 : st->hash6;
	__u32 mtu = pkt->ip == 4 ? st->mtu4 : st->mtu6;
	struct route_notes *notes = route_note();
	__u32 found;

	if (!notes)
		return false;
	notes->slot = 1;
	/* bpf_fib_lookup heeds the MTU of a route only if it is locked: route_by_kernel decides. */
	if (policy > 1 || (mtu && pkt->ip_len > mtu) || !route_flow(pkt, st))
		return false;
	notes->now = to->used;
	notes->slot = route_flow_of(pkt, policy, to->seq, &notes->flow);
	found = route_choice(&notes->flow);
	fence(); /* the kernel is asked after the slot has been read */
	if (!found)
		return false;
	notes->slot = 1;
	route_read_hop(found, to, to->used);
	return to->action == ROUTE_FORWARD && pkt->ip_len <= to->hop.mtu;
}

/* Takes the next hop from the kernel's lookup. to has the next hop that the mirror has found. Returns what route_fib_hop does. */
static __noinline int route_by_kernel(struct xdp_md *ctx, const struct packet *pkt,
				      const struct route_state *st, __u32 dev, struct route_hop *to)
{
	struct bpf_fib_lookup fib __attribute__((aligned(8)));
	int answer, mtu;

	if (!route_flow(pkt, st) || (pkt->ip == 4 ? st->hash4 : st->hash6) > 1)
		return PASS_ROUTE_KERNEL;
	answer = route_ask(ctx, pkt, dev, false, &fib);
	if (answer != BPF_FIB_LKUP_RET_SUCCESS)
		return route_fib_reason(answer);
	/* bpf_fib_lookup heeds the MTU of a route only if it is locked; forwarding always does. */
	mtu = pkt->ip == 4 ? st->mtu4 : st->mtu6;
	if (mtu && pkt->ip_len > mtu)
		return PASS_ROUTE_KERNEL;
	return route_fib_hop(&fib, to);
}

/* Finds the next hop of a packet that Linux would forward, or returns the reason why there is none. */
static __always_inline int route_find(struct xdp_md *ctx, struct packet *pkt,
				      const struct route_from *in, const struct route_state *st,
				      struct route_hop *hop, bool *asked)
{
	const void *ip = pkt->data + pkt->l3;
	__u64 now = coarse_recent();
	__u64 until = *(volatile const __u64 *)(&st->until4 + route_family(pkt));
	bool current = route_mirror && (route_trusting || now < until);
	__u32 number = 0;
	int reason;
	__u8 ttl;

	barrier_var(ip);
	if (pkt->ip == 4) {
		if (ip + 20 > pkt->data_end)
			return PUNT_ROUTE_MALFORMED;
		reason = route_check4(LOAD32(ip + 12), daddr4(pkt, ip));
		if (!reason && route_mirror)
			number = lpm_find4(daddr4(pkt, ip));
		ttl = LOAD8(ip + 8);
	} else {
		__u64 high, low;

		if (ip + 40 > pkt->data_end)
			return PUNT_ROUTE_MALFORMED;
		high = bpf_be64_to_cpu(daddr6_half(pkt, ip, 0));
		low = bpf_be64_to_cpu(daddr6_half(pkt, ip, 8));
		reason = route_check6_dst(high);
		if (!reason && route_mirror)
			number = lpm_find6(high, low);
		ttl = LOAD8(ip + 7);
	}
	if (reason)
		return reason;
	if (!route_copy_hop(number, hop, now >> ROUTE_USED_SHIFT))
		return PASS_ROUTE_KERNEL;
	if (hop->action == ROUTE_CONNECTED)
		route_connected(pkt, hop);
	if (current && hop->action == ROUTE_LOCAL)
		return PASS_ROUTE_LOCAL;
	if (pkt->ip == 4)
		reason = route_source4(ctx, pkt, in, st, current);
	else
		reason = route_source6(pkt);
	*asked = !current || hop->action == ROUTE_ASK || hop->action == ROUTE_CONNECTED;
	/*
	 * The packet may be to this host, and its source may send to this host. Only a valid mirror tells which packets
	 * are to this host.
	 */
	if (reason)
		return *asked ? PASS_ROUTE_KERNEL : reason;
	if (!*asked) {
		reason = route_hop_reason(hop->action);
	} else {
		if (route_mirror && route_doubt(hop, current) && route_recall(pkt, st, hop))
			*asked = false;
		else
			reason = route_by_kernel(ctx, pkt, st, in->index, hop);
		if (reason < 0) {
			if (route_mirror && hop->remember)
				route_remember(-reason);
			reason = REASON_NONE;
		}
	}
	if (reason)
		return reason;
	if (ttl <= 1)
		return PUNT_ROUTE_TTL;
	if (pkt->ip_len > hop->hop.mtu)
		return PUNT_ROUTE_MTU;
	if (hop->dev == in->index && (pkt->ip != 4 || in->flags & ROUTE_DEV_REDIRECTS))
		return PASS_ROUTE_REDIRECT;
	return REASON_NONE;
}

static __always_inline int route_no_fwd(const struct packet *pkt)
{
	return pkt->no_fwd_reason == NO_FWD_OPTIONS ? PUNT_ROUTE_OPTIONS : PUNT_ROUTE_MALFORMED;
}

/*
 * Returns the reason for a packet that must not be forwarded whatever its destination. A packet to this host is passed.
 * Any other is punted, which has a rate limit.
 */
static __always_inline int route_no_fwd_reason(struct packet *pkt)
{
	const void *ip = pkt->data + pkt->l3;
	struct route_hop *hop;
	__u32 number;

	barrier_var(ip);
	if (!route_mirror || ip + 20 > pkt->data_end)
		return route_no_fwd(pkt);
	if (pkt->ip == 4) {
		if ((LOAD8(ip + 16) & 0xf0) == 0xe0) /* IGMP, for example, comes with options */
			return PASS_ROUTE_LOCAL;
		number = lpm_find4(LOAD32(ip + 16));
	} else {
		if (ip + 40 > pkt->data_end)
			return route_no_fwd(pkt);
		number = lpm_find6(bpf_be64_to_cpu(LOAD64(ip + 24)),
				   bpf_be64_to_cpu(LOAD64(ip + 32)));
	}
	hop = bpf_map_lookup_elem(&route_hops, &number);
	return hop && hop->action == ROUTE_LOCAL ? PASS_ROUTE_LOCAL : route_no_fwd(pkt);
}

/* Whether a packet is neighbor discovery (RFC 4861). The kernel may answer for another host (proxy_ndp). */
static __always_inline bool route_discovery(const struct packet *pkt)
{
	const void *l4 = pkt->data + pkt->l3 + 40;

	if (pkt->proto != IPPROTO_ICMPV6)
		return false;
	barrier_var(l4);
	return l4 + 1 > pkt->data_end || (LOAD8(l4) >= 133 && LOAD8(l4) <= 137);
}

static __noinline int route(struct xdp_md *ctx, struct packet *pkt)
{
	struct route_from in;
	struct route_hop hop;
	struct route_state *st;
	bool asked = false;
	__u32 zero = 0;
	int reason;

	if (!route_in(pkt, &in))
		return PASS_ROUTE_OFF;
	st = bpf_map_lookup_elem(&route_states, &zero);
	if (!st || (&st->kernel4)[route_family(pkt)])
		return PASS_ROUTE_KERNEL;
	if (pkt->no_fwd_reason)
		return route_no_fwd_reason(pkt);
	if (pkt->ip == 6 && route_discovery(pkt))
		return PASS_ROUTE_KERNEL;
	reason = route_find(ctx, pkt, &in, st, &hop, &asked);
	if (!reason)
		reason = route_send(ctx, pkt, &hop.hop);
	return reason ?: (asked ? FWD_ROUTE_FIB : FWD_ROUTE);
}

/* The stage. Returns REASON_NONE for anything but an IP packet to this interface. */
static __always_inline int route_stage(struct xdp_md *ctx, struct packet *pkt)
{
	if (!route_on || !pkt->port || !pkt->ip)
		return REASON_NONE;
	if (!straight_off && route_mirror && !pkt->vlan && !pkt->no_fwd_reason && !rewritten(pkt)) {
		const struct route_dev *in = &pkt->port->route;

		pkt->egress = pkt->ip == 4 ? route_straight4(ctx, in, pkt->ip_len)
					   : route_straight6(ctx, in, pkt->ip_len);
		if (pkt->egress)
			return FWD_ROUTE;
	}
	packet_forget(pkt);
	return route(ctx, pkt);
}

#endif
