/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An IP router of the least code: it asks the kernel's own tables for every packet. Programs that forward in XDP are
 * usually written this way, so the router stage is compared with it.
 */
#ifndef CULVERT_BENCH_FIB_H
#define CULVERT_BENCH_FIB_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define FIB_AF_INET 2
#define FIB_AF_INET6 10
#define FIB_FRAGMENT 0x3fff /* more fragments, and the offset */

/* The number of packets that were left to the kernel. Written by: bench_fib, on one CPU. */
__u64 fib_passed = 0;

/* Decrements the TTL and updates the checksum (RFC 1624): the word with the TTL falls by 0x0100. */
static __always_inline void fib_hop4(struct iphdr *ip)
{
	__u32 sum = ip->check;

	sum += bpf_htons(0x0100);
	ip->check = (__u16)(sum + (sum >= 0xffff));
	ip->ttl--;
}

/* Sends the packet to the neighbor that the kernel names, or leaves it to the kernel. */
static __always_inline int fib_forward(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	void *data = (void *)(long)ctx->data;
	struct bpf_fib_lookup fib = {};
	struct ethhdr *eth = data;
	struct ipv6hdr *ip6;
	struct iphdr *ip4;

	if ((void *)(eth + 1) > end)
		goto pass;
	ip4 = (void *)(eth + 1);
	ip6 = (void *)(eth + 1);
	fib.ifindex = ctx->ingress_ifindex;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		if ((void *)(ip4 + 1) > end || ip4->ihl != 5 || ip4->ttl <= 1 ||
		    ip4->frag_off & bpf_htons(FIB_FRAGMENT))
			goto pass;
		fib.family = FIB_AF_INET;
		fib.tos = ip4->tos;
		fib.l4_protocol = ip4->protocol;
		fib.tot_len = bpf_ntohs(ip4->tot_len);
		fib.ipv4_src = ip4->saddr;
		fib.ipv4_dst = ip4->daddr;
	} else if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		if ((void *)(ip6 + 1) > end || ip6->hop_limit <= 1)
			goto pass;
		fib.family = FIB_AF_INET6;
		fib.flowinfo = *(__be32 *)ip6 & bpf_htonl(0x0fffffff);
		fib.l4_protocol = ip6->nexthdr;
		fib.tot_len = bpf_ntohs(ip6->payload_len) + sizeof(*ip6);
		__builtin_memcpy(fib.ipv6_src, &ip6->saddr, sizeof(fib.ipv6_src));
		__builtin_memcpy(fib.ipv6_dst, &ip6->daddr, sizeof(fib.ipv6_dst));
	} else {
		goto pass;
	}
	if (bpf_fib_lookup(ctx, &fib, sizeof(fib), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		goto pass;
	if (fib.family == FIB_AF_INET)
		fib_hop4(ip4);
	else
		ip6->hop_limit--;
	__builtin_memcpy(eth->h_dest, fib.dmac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, fib.smac, ETH_ALEN);
	return bpf_redirect(fib.ifindex, 0);
pass:
	fib_passed++;
	return XDP_PASS;
}

#endif
