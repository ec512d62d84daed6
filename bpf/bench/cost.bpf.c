// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Programs to measure: a bare redirect, an IP router of the least code, an empty program, and others; and a wrapper
 * that lets a program run many times on a fresh packet. All take multi-buffer packets, because a veth with a large MTU
 * accepts no others and because a tail call needs the same kind on both sides.
 */
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>

#include <bpf/bpf_endian.h>

#include "fib.h"
#include "rewrite.h"
#include "template.h"

/* The cost wrapper's state on one CPU. */
struct cost_state {
	__u64 home; /* address of the packet's first byte, 0 before the first run */
	__u64 data; /* address of its first byte now */
	__u32 next; /* index of the next template */
	__u32 pad;
};

/* Set before loading: the device that bench_redirect sends from. */
const volatile __u32 out_ifindex = 0;

/* Written by: the cost wrapper; internal/bench resets it before a run. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct cost_state);
	__uint(max_entries, 1);
} restore SEC(".maps");

/* The program under test. Written by: internal/bench, before the first run. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
	__uint(max_entries, 1);
} subject SEC(".maps");

/* The least that a forwarding program can do. */
SEC("xdp.frags")
int bench_redirect(struct xdp_md *ctx)
{
	return bpf_redirect(out_ifindex, 0);
}

/*
 * Set before loading. rewrite_header is what bench_rewrite writes: Ethernet, IPv4 and UDP without lengths and
 * checksums. The sums are those of the IPv4 header, and of pseudo header and UDP header, minus those of the header that
 * is replaced.
 */
const volatile __u8 rewrite_header[48] __attribute__((aligned(8)));
const volatile __u32 rewrite_ip_sum = 0;
const volatile __u32 rewrite_l4_sum = 0;

/*
 * The least that any SCION border router has to do to a packet that goes on in its segment, in construction direction:
 * write another outer header, the next hop field, SegID and checksums. Nothing is checked, looked up or counted. What a
 * router costs more than this is its own.
 */
SEC("xdp.frags")
int bench_rewrite(struct xdp_md *ctx)
{
	return rewrite(ctx, rewrite_header, rewrite_ip_sum, rewrite_l4_sum)
		       ? XDP_ABORTED
		       : bpf_redirect(out_ifindex, 0);
}

/* Forwards IP packets by the kernel's tables, which it asks for each packet. */
SEC("xdp.frags")
int bench_fib(struct xdp_md *ctx)
{
	return fib_forward(ctx);
}

/* Does nothing. On a veth it turns NAPI on, without which the peer cannot redirect into it. */
SEC("xdp.frags")
int bench_empty(struct xdp_md *ctx)
{
	return XDP_PASS;
}

/* Drops every packet: what a filter in XDP can do at best. */
SEC("xdp.frags")
int bench_drop(struct xdp_md *ctx)
{
	return XDP_DROP;
}

/* Drops ICMP over IPv4 and passes the rest: the least code that filters. */
SEC("xdp.frags")
int bench_drop_icmp(struct xdp_md *ctx)
{
	const void *end = (void *)(long)ctx->data_end;
	const struct ethhdr *eth = (void *)(long)ctx->data;
	const struct iphdr *ip = (void *)(eth + 1);

	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) ||
	    ip->protocol != IPPROTO_ICMP)
		return XDP_PASS;
	return XDP_DROP;
}

/*
 * Undoes what the last run did to the packet, puts the next template in it and calls the subject. Headroom and length
 * are restored by calls in every run, even if nothing has changed. So these calls cost the same with a subject that
 * moves the ends of the packet as with the empty program, and cancel out.
 */
SEC("xdp.frags")
int bench_cost(struct xdp_md *ctx)
{
	const struct frame_template *t;
	struct cost_state *s;
	__u32 zero = 0;
	long meta;

	s = bpf_map_lookup_elem(&restore, &zero);
	if (!s)
		return XDP_ABORTED;
	meta = (void *)(long)ctx->data - (void *)(long)ctx->data_meta;
	if (meta && bpf_xdp_adjust_meta(ctx, meta))
		return XDP_ABORTED;
	/* The address has to pass through memory to become a number that may be subtracted. */
	*(volatile __u64 *)&s->data = (__u64)(long)ctx->data;
	if (!s->home)
		s->home = *(volatile __u64 *)&s->data;
	if (bpf_xdp_adjust_head(ctx, (int)(s->home - *(volatile __u64 *)&s->data)))
		return XDP_ABORTED;
	t = template_take(&s->next);
	if (!t)
		return XDP_ABORTED;
	if (bpf_xdp_adjust_tail(ctx, (int)t->frame_len - (int)bpf_xdp_get_buff_len(ctx)))
		return XDP_ABORTED;
	if (template_put(ctx, t))
		return XDP_ABORTED;
	bpf_tail_call(ctx, &subject, 0);
	return XDP_ABORTED;
}

char _license[] SEC("license") = "Dual BSD/GPL";
