/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_LIMIT_H
#define CULVERT_CORE_LIMIT_H

#include "clock.h"
#include "packet.h"
#include "reason.h"

/*
 * The rate at which packets may leave for a reason. Limits use the generic cell rate algorithm (GCRA): one time stamp
 * each, and no division. CPUs update the time stamp without a lock. A race lets through at most one packet too many for
 * each CPU.
 */
struct limit {
	__u64 interval; /* ns from one packet to the next; 0: no limit */
	__u64 burst; /* ns by which packets may come early */
	__u64 due; /* when the next packet is due, ns */
};

/*
 * The rate of each reason for all packets together. Key: index of the reason. Writer of interval and burst: datapath.
 * Writers of due: the programs, and datapath for LIMIT_NEVER.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REASON_MAX);
	__type(key, __u32);
	__type(value, struct limit);
} limits SEC(".maps");

#define LIMIT_NEVER (~0ULL) /* value of due: no packet may leave for the reason */

/*
 * A domain is a group of senders that share a rate. No domain can use up what belongs to another. The first domains are
 * those of the interfaces, by slot, each for all hosts behind the interface. The domains that stages define follow.
 */
#define DOMAIN_HOSTS 0
#define DOMAIN_STAGES MAX_PORTS

/*
 * Each domain has 1/LIMIT_SHARES of a reason's rate for itself. On top of that all domains share the common rate, first
 * come, first served.
 */
#define LIMIT_SHARES 10

/*
 * When the next packet of a domain's own share is due, ns. Key: domain * REASON_MAX + index of the reason. Writer: the
 * programs.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} limit_shares SEC(".maps");

/* Whether a packet is over the rate. If not, it is charged. */
static __always_inline bool over_rate(__u64 *due_at, __u64 interval, __u64 burst)
{
	__u64 now = coarse_recent();
	__u64 due = *(volatile __u64 *)due_at;

	if (due < now)
		due = now;
	if (due - now > burst)
		return true;
	*(volatile __u64 *)due_at = due + interval;
	return false;
}

/* As over_rate, for a limit that may be off (interval 0). */
static __always_inline bool over_limit(struct limit *l)
{
	return l->interval && over_rate(&l->due, l->interval, l->burst);
}

/*
 * Whether a packet is over the rate of its reason. Otherwise it is charged to its domain's own share, or to the
 * common rate when that share is used up.
 */
static __always_inline bool limited(__u32 reason, __u32 domain)
{
	__u32 index = REASON_INDEX(reason), share = domain * REASON_MAX + index;
	struct limit *l = bpf_map_lookup_elem(&limits, &index);
	__u64 *due;

	if (!l || !l->interval)
		return false;
	if (*(volatile __u64 *)&l->due == LIMIT_NEVER)
		return true;
	due = bpf_map_lookup_elem(&limit_shares, &share);
	if (due && !over_rate(due, l->interval * LIMIT_SHARES, l->burst))
		return false;
	return over_limit(l);
}

/* The domain of the hosts behind the interface that a packet came in by. */
static __always_inline __u32 limit_domain(const struct port *port)
{
	return port ? DOMAIN_HOSTS + port->slot - 1 : DOMAIN_HOSTS;
}

/* Returns the final reason of a punt: its own, or the matching one of VERDICT_LIMITED if the punt is over its rate. */
static __always_inline __u32 limit(const struct packet *pkt, __u32 reason)
{
	if (limited(reason, pkt->domain ?: limit_domain(pkt->port)))
		reason += REASON(VERDICT_LIMITED - VERDICT_PUNT, REASON_MAX);
	return reason;
}

/*
 * Whether an answer that leaves for that reason is within its rate. If so, it is charged. The check in verdict() would
 * come too late, because an answer overwrites the packet: a stage asks before it builds one.
 */
static __always_inline bool limit_allows(const struct xdp_md *ctx, __u32 reason)
{
	__u32 ifindex = ctx->ingress_ifindex;

	return !limited(reason, limit_domain(port_at(ifindex)));
}

#endif
