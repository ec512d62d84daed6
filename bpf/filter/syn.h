/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_SYN_H
#define CULVERT_FILTER_SYN_H

#include "flow_keys.h"
#include "syn_answer.h"
#include "syn_check.h"
#include "syn_cookie.h"
#include "syn_listener.h"

/* Whether there are protected services. */
const volatile bool filter_protects;

/* A protected service. */
struct filter_service {
	__u8 flags; /* FILTER_SERVICE_ */
	__u8 wscale; /* of a forwarded service: as in its SYNPROXY rule */
	__u16 mss; /* to announce; 0: what the MTU allows */
};

/* The service is on another host, behind a SYNPROXY rule of this one. */
#define FILTER_SERVICE_FORWARDED 1

struct filter_service_key {
	struct ip_addr addr;
	__be16 port;
	__u8 ip; /* 4 or 6: an IPv4-mapped IPv6 address is not the IPv4 address */
	__u8 pad;
};

#define FILTER_MAX_SERVICES 4096

/* Writer: filterplane. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FILTER_MAX_SERVICES);
	__type(key, struct filter_service_key);
	__type(value, struct filter_service);
} filter_services SEC(".maps");

/* Answers a SYN to a service behind a SYNPROXY rule. */
static __always_inline int filter_syn_forwarded(struct xdp_md *ctx, struct syn *syn,
						const struct filter_service *service)
{
	if ((syn->flags & SYN_FLAGS) != TCP_SYN)
		return 0; /* the rule checks cookies, and conntrack the rest */
	if (!syn_reads(ctx, syn) || !syn_cookie_raw(ctx, syn))
		return 0;
	syn->mss = service->mss;
	/* A window of 0: the client may send nothing before the rule has connected to the service. */
	syn->window = 0;
	syn->wscale = service->wscale;
	if (syn->opt.has_ts)
		syn_encode(syn);
	return syn_answer(ctx, syn);
}

/* Handles a packet to a service on this host. */
static __always_inline int filter_syn_local(struct xdp_md *ctx, const struct flow_keys *keys,
					    struct syn *syn, const struct filter_service *service)
{
	int reason;

	if ((syn->flags & SYN_FLAGS) == TCP_SYN && !syn_reads(ctx, syn))
		return 0;
	reason = syn_listener(ctx, keys, syn);
	if (reason != XMIT_FILTER_SYNACK)
		return reason;
	if (service->mss && service->mss < syn->mss)
		syn->mss = service->mss;
	return syn_answer(ctx, syn);
}

/* Handles a packet to a protected address and port. It is a global function, which the verifier checks once. */
__noinline int filter_syn_packet(struct xdp_md *ctx, const struct flow_keys *keys)
{
	struct filter_service_key key = {};
	struct filter_service *service;
	struct syn syn = {};

	if (!keys || keys->proto != IPPROTO_TCP)
		return 0;
	key.addr = keys->dst;
	key.port = keys->dport;
	key.ip = keys->ip;
	service = bpf_map_lookup_elem(&filter_services, &key);
	if (!service || !syn_checks(ctx, keys, &syn))
		return 0;
	if (service->flags & FILTER_SERVICE_FORWARDED)
		return filter_syn_forwarded(ctx, &syn, service);
	return filter_syn_local(ctx, keys, &syn, service);
}

/*
 * Returns the reason for a packet to a protected service, or 0 for a packet that goes on. For an answer the length of
 * the SYN stands above the reason. Packets that the filter does not understand go on. The kernel answers them with a
 * cookie too, but more slowly.
 */
static __always_inline int filter_syn(struct xdp_md *ctx, const struct flow_keys *keys)
{
	if (keys->proto != IPPROTO_TCP || !keys->ports)
		return 0;
	return filter_syn_packet(ctx, keys);
}

#endif
