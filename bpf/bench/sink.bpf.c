// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The sink. It takes multi-buffer packets, because a veth with a large MTU accepts no others.
 */
#include <stddef.h>

#include <linux/types.h>

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>

#include "delay.h"
#include "order.h"

/* Set before loading: the UDP port that the generator's frames are for, host order, or 0 for any. */
const volatile __u16 udp_port = 0;
/* Set before loading: whether stamps have a time. */
const volatile bool timed = false;

/* What a sink saw on one CPU. */
struct count {
	__u64 packets;
	__u64 bytes;
	__u64 other; /* frames that are not the generator's */
};

/* Set before loading: frames shorter than this are not the generator's. */
const volatile __u32 min_len = 0;
/* Set before loading: where the sink finds a 32-bit big-endian tag to count by, or -1. */
const volatile __s32 tag_offset = -1;
/*
 * Set before loading: where a 32-bit big-endian number, mark, tells the generator's frames from others; -1 if all are
 * the generator's.
 */
const volatile __s32 mark_offset = -1;
const volatile __u32 mark = 0;

/* Written by: the sink. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct count);
	__uint(max_entries, 1);
} seen SEC(".maps");

/* Packets by tag. Written by: the sink. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} tags SEC(".maps");

static __always_inline void count_tag(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	__be32 *tag = (void *)(long)ctx->data + tag_offset;
	__u64 *packets;
	__u32 key;

	if ((void *)(tag + 1) > end)
		return;
	key = __builtin_bswap32(*tag);
	packets = bpf_map_lookup_elem(&tags, &key);
	if (packets)
		(*packets)++;
}

static __always_inline bool marked(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	__be32 *at = (void *)(long)ctx->data + mark_offset;

	return (void *)(at + 1) <= end && *at == __builtin_bswap32(mark);
}

/* Whether the packet is UDP for udp_port, over IPv4 or IPv6 without extension headers. */
static __always_inline bool for_port(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct ipv6hdr *ip6 = (void *)(eth + 1);
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp;

	if ((void *)(ip + 1) > end)
		return false;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		if (ip->ihl < 5 || ip->protocol != IPPROTO_UDP || ip->frag_off & bpf_htons(0x1fff))
			return false;
		udp = (void *)ip + ip->ihl * 4;
	} else if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		if ((void *)(ip6 + 1) > end || ip6->nexthdr != IPPROTO_UDP)
			return false;
		udp = (void *)(ip6 + 1);
	} else {
		return false;
	}
	return (void *)(udp + 1) <= end && udp->dest == bpf_htons(udp_port);
}

/* Reads the stamp in the last bytes of a frame of len bytes. */
static __always_inline bool read_stamp(struct xdp_md *ctx, __u64 len, struct stamp *s)
{
	void *end = (void *)(long)ctx->data_end;
	__u64 at = len - STAMP_LEN;
	struct stamp *place;

	if (len < STAMP_LEN)
		return false;
	barrier_var(at);
	if (at > STAMP_AT_MAX)
		return false;
	place = (void *)(long)ctx->data + at;
	if ((void *)(place + 1) <= end)
		*s = *place;
	else if (bpf_xdp_load_bytes(ctx, at, s, sizeof(*s)))
		return false;
	s->label = __builtin_bswap64(s->label);
	s->moment = __builtin_bswap64(s->moment);
	return s->label >> 40 == STAMP_MAGIC;
}

/* Records a stamped frame. False if it has no stamp, or its flow is not known. */
static __always_inline bool note_stamp(struct xdp_md *ctx, __u64 len)
{
	struct delay_count *d = NULL;
	struct flow_state *f;
	__u32 flow, zero = 0;
	struct stamp s;

	if (!read_stamp(ctx, len, &s))
		return false;
	flow = s.label >> 16 & STAMP_FLOW_MASK;
	f = bpf_map_lookup_elem(&flows, &flow);
	if (!f)
		return false;
	if (timed)
		d = bpf_map_lookup_elem(&delays, &zero);
	if (d)
		delay_note(d, s.moment);
	bpf_spin_lock(&f->lock);
	order_note(f, s.moment >> STAMP_TIME_BITS);
	bpf_spin_unlock(&f->lock);
	return true;
}

/* Counts and drops the generator's frames; leaves the rest to the stack. */
SEC("xdp.frags")
int bench_sink(struct xdp_md *ctx)
{
	__u64 len = bpf_xdp_get_buff_len(ctx);
	struct count *s;
	__u32 zero = 0;

	s = bpf_map_lookup_elem(&seen, &zero);
	if (!s)
		return XDP_ABORTED;
	if (len < min_len || (mark_offset >= 0 && !marked(ctx)) || (udp_port && !for_port(ctx)) ||
	    (flow_count && !note_stamp(ctx, len))) {
		s->other++;
		return XDP_PASS;
	}
	s->packets++;
	s->bytes += len;
	if (tag_offset >= 0)
		count_tag(ctx);
	return XDP_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
