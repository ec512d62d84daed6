/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Flows that need no template each. The source of a TCP packet over IPv4 is made from the number of its flow: an
 * address of 10.0.0.0/8 and a port from 32768 on. Numbers are mapped one to one to the 2^32 sources, and spread so that
 * successive flows have little in common.
 */
#ifndef CULVERT_BENCH_VARY_H
#define CULVERT_BENCH_VARY_H

#include <linux/types.h>

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "core/checksum.h"

/* internal/bench/scenario/lbrun makes the same sources: clientAddr. */
#define VARY_SPREAD 2654435761U
#define VARY_NET 0x0a000000U
#define VARY_PORT 0x8000U

/* Set before loading: the number of flows that take turns, 0 to keep those of the templates. */
const volatile __u32 vary_flows = 0;

/* The layout of a frame with an IPv4 header without options and a TCP header. */
struct vary_frame {
	__u8 before[24];
	__u16 ip_check;
	__u16 saddr[2];
	__u16 daddr[2];
	__u16 sport;
	__u16 dport;
	__u8 between[12];
	__u16 tcp_check;
};

/* Gives the packet the source of flow *next, and advances *next. Returns 0 or -1. */
static __always_inline int vary(struct xdp_md *ctx, __u32 *next)
{
	struct vary_frame *f = (void *)(long)ctx->data;
	__u32 flow = *next, spread = flow * VARY_SPREAD, addr, port, change;
	__u16 high, low;

	if ((void *)(f + 1) > (void *)(long)ctx->data_end)
		return -1;
	*next = flow + 1 < vary_flows ? flow + 1 : 0;
	addr = bpf_htonl(VARY_NET | (spread & 0xffffff));
	port = bpf_htons(VARY_PORT | spread >> 24);
	high = addr & 0xffff;
	low = addr >> 16;
	/* RFC 1624: checksums are complements of sums, of words as they stand in memory */
	change = (__u16)~f->saddr[0] + (__u16)~f->saddr[1] + high + low;
	f->ip_check = ~csum_fold((__u16)~f->ip_check + change);
	f->tcp_check = ~csum_fold((__u16)~f->tcp_check + change + (__u16)~f->sport + port);
	f->saddr[0] = high;
	f->saddr[1] = low;
	f->sport = port;
	return 0;
}

#endif
