// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The programs of the bench: a generator, a sink, a bare redirect, an empty program, and a wrapper
 * that lets a program run many times on a fresh packet. All take multi-buffer packets, because a
 * veth with a large MTU accepts no others and because a tail call needs the same kind on both
 * sides.
 */
#include "bench.h"

/* Set before loading: the device that generator and redirect send from. */
const volatile __u32 out_ifindex = 0;
/* Set before loading: the length of the packet that a live-frame run starts from. */
const volatile __u32 base_len = 0;
/* Set before loading: frames shorter than this are not the generator's. */
const volatile __u32 min_len = 0;
/* Set before loading: where the sink finds a 32-bit big-endian tag to count by, or -1. */
const volatile __s32 tag_offset = -1;
/* Set before loading: where a 32-bit big-endian number tells the generator's frames from others, or
 * -1 when all are the generator's; and that number. */
const volatile __s32 mark_offset = -1;
const volatile __u32 mark = 0;

/* Written by: the generator; internal/bench resets it before a run. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct gen_state);
	__uint(max_entries, 1);
} sent SEC(".maps");

/* Written by: the sink. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct sink_count);
	__uint(max_entries, 1);
} seen SEC(".maps");

/* Packets by tag. Written by: the sink. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} tags SEC(".maps");

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

/* At some 15 ns a turn, how long a packet can be held back at most. */
#define PACE_TURNS 65536
/* How many packets may go at once to make up for lost time. */
#define PACE_BURST 64

static long pace_turn(__u32 turn, __u64 *due_ns)
{
	return bpf_ktime_get_ns() >= *due_ns;
}

/* Waits until the next packet is due. */
static __always_inline void pace(struct gen_state *s)
{
	__u64 due_ns = s->due_ns;
	__u64 late_ns;

	bpf_loop(PACE_TURNS, pace_turn, &due_ns, 0);
	late_ns = bpf_ktime_get_ns() - due_ns;
	s->due_ns = due_ns + s->gap_ns;
	if (late_ns > PACE_BURST * s->gap_ns)
		s->due_ns += late_ns;
}

/* Sends the next template. Meant for a test run with live frames; what exceeds the quota is not
 * sent. */
SEC("xdp.frags")
int bench_generate(struct xdp_md *ctx)
{
	const struct frame_template *t;
	struct gen_state *s;
	__u32 zero = 0;

	s = bpf_map_lookup_elem(&sent, &zero);
	if (!s || s->packets >= s->quota)
		return XDP_DROP;
	t = template_take(&s->next);
	if (!t)
		return XDP_ABORTED;
	if (s->gap_ns)
		pace(s);
	/* Live frames keep what the device under test wrote into them, but start with their first
	 * length. */
	if (t->frame_len != base_len && bpf_xdp_adjust_tail(ctx, (int)t->frame_len - (int)base_len))
		return XDP_ABORTED;
	if (template_put(ctx, t))
		return XDP_ABORTED;
	if (bpf_redirect(out_ifindex, 0) != XDP_REDIRECT)
		return XDP_ABORTED;
	if (s->packets == 0)
		s->first_ns = bpf_ktime_get_ns();
	s->packets++;
	s->bytes += t->frame_len;
	if (s->packets == s->quota)
		s->last_ns = bpf_ktime_get_ns();
	return XDP_REDIRECT;
}

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

/* Counts and drops the generator's frames; leaves the rest to the stack. */
SEC("xdp.frags")
int bench_sink(struct xdp_md *ctx)
{
	__u64 len = bpf_xdp_get_buff_len(ctx);
	struct sink_count *s;
	__u32 zero = 0;

	s = bpf_map_lookup_elem(&seen, &zero);
	if (!s)
		return XDP_ABORTED;
	if (len < min_len || (mark_offset >= 0 && !marked(ctx))) {
		s->other++;
		return XDP_PASS;
	}
	s->packets++;
	s->bytes += len;
	if (tag_offset >= 0)
		count_tag(ctx);
	return XDP_DROP;
}

/* The least a forwarding program can do. */
SEC("xdp.frags")
int bench_redirect(struct xdp_md *ctx)
{
	return bpf_redirect(out_ifindex, 0);
}

/* Does nothing. On a veth it turns NAPI on, without which the peer cannot redirect into it. */
SEC("xdp.frags")
int bench_empty(struct xdp_md *ctx)
{
	return XDP_PASS;
}

/*
 * Undoes what the last run did to the packet, puts the next template in it and calls the subject.
 * The headroom and the length are restored by calls that are made whether needed or not, so that
 * they cost the same with a subject that moves the packet's ends and with the empty program, and
 * cancel out.
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
	/* The address has to pass through memory to become a number that can be subtracted. */
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
