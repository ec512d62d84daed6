// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The generator. It takes multi-buffer packets, because a veth with a large MTU accepts no others.
 */
#include "stamp.h"
#include "template.h"
#include "vary.h"

/* A generator's progress on one CPU. Times are CLOCK_MONOTONIC nanoseconds. */
struct progress {
	__u64 quota; /* packets to send, set before a run */
	__u64 packets;
	__u64 bytes;
	__u64 first_ns;
	__u64 last_ns;
	__u64 gap_ns; /* from one packet to the next, 0 for none: set before a run */
	__u64 due_ns; /* when the next packet may go */
	__u32 next;   /* index of the next template */
	__u32 flow;   /* with vary_flows: the next flow */
};

/* Set before loading: the device that frames are sent from. */
const volatile __u32 out_ifindex = 0;
/* Set before loading: the length of the packet that a live-frame run starts from. */
const volatile __u32 base_len = 0;
/* Set before loading: whether frames get stamps. */
const volatile bool stamps = false;
/* Set before loading: whether these stamps have a time. */
const volatile bool timed = false;

/* Written by: internal/bench, to end a run early. */
volatile bool stop = false;

/* Written by: the generator; internal/bench resets it before a run. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct progress);
	__uint(max_entries, 1);
} sent SEC(".maps");

/* The most iterations for which one run of the program waits, about 15 ns each. */
#define PACE_TURNS 65536
/* The most packets that go at once to make up for lost time. */
#define PACE_BURST 64

static long pace_turn(__u32 turn, __u64 *due_ns)
{
	return bpf_ktime_get_ns() >= *due_ns;
}

/* Waits until the next packet is due. False if it is not due yet: another run goes on waiting. */
static __always_inline bool pace(struct progress *s)
{
	__u64 due_ns = s->due_ns;
	__u64 now_ns;

	bpf_loop(PACE_TURNS, pace_turn, &due_ns, 0);
	now_ns = bpf_ktime_get_ns();
	if (now_ns < due_ns)
		return false;
	s->due_ns = due_ns + s->gap_ns;
	if (now_ns - due_ns > PACE_BURST * s->gap_ns)
		s->due_ns = now_ns + s->gap_ns;
	return true;
}

/* Writes the template's next stamp into the last bytes of a frame of len bytes. Returns 0 or -1. */
static __always_inline int put_stamp(struct xdp_md *ctx, struct frame_template *t, __u32 len)
{
	__u64 now_ns = timed ? bpf_ktime_get_ns() : 0;
	void *end = (void *)(long)ctx->data_end;
	__u32 at = len - STAMP_LEN;
	struct stamp *place;
	struct stamp s;

	stamp_make(&s, t->flow, t->seq, now_ns, t->stamp_sum);
	t->seq = (t->seq + t->seq_step) & STAMP_SEQ_MASK;
	barrier_var(at);
	if (at > STAMP_AT_MAX)
		return -1;
	place = (void *)(long)ctx->data + at;
	if ((void *)(place + 1) > end)
		return bpf_xdp_store_bytes(ctx, at, &s, sizeof(s));
	*place = s;
	return 0;
}

/* Sends the next template. It is for a test run with live frames. Packets above the quota are not sent. */
SEC("xdp.frags")
int bench_generate(struct xdp_md *ctx)
{
	struct frame_template *t;
	struct progress *s;
	__u32 zero = 0;

	s = bpf_map_lookup_elem(&sent, &zero);
	if (!s || s->packets >= s->quota)
		return XDP_DROP;
	if (stop) {
		if (!s->last_ns)
			s->last_ns = bpf_ktime_get_ns();
		return XDP_DROP;
	}
	if (s->gap_ns && !pace(s))
		return XDP_DROP;
	t = template_take(&s->next);
	if (!t)
		return XDP_ABORTED;
	/* A live frame keeps what the device under test has written into it, but begins with its first length. */
	if (t->frame_len != base_len && bpf_xdp_adjust_tail(ctx, (int)t->frame_len - (int)base_len))
		return XDP_ABORTED;
	if (template_put(ctx, t))
		return XDP_ABORTED;
	if (vary_flows && vary(ctx, &s->flow))
		return XDP_ABORTED;
	if (stamps && put_stamp(ctx, t, t->frame_len))
		return XDP_ABORTED;
	if (bpf_redirect(out_ifindex, 0) != XDP_REDIRECT)
		return XDP_ABORTED;
	if (s->packets == 0)
		s->first_ns = bpf_ktime_get_ns();
	s->packets++;
	s->bytes += t->frame_len;
	if (s->gap_ns || s->packets == s->quota)
		s->last_ns = bpf_ktime_get_ns();
	return XDP_REDIRECT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
