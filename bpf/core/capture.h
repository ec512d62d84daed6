/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_CAPTURE_H
#define CULVERT_CORE_CAPTURE_H

#include "compiler.h"
#include "port.h"
#include "reason.h"

/*
 * Shows packets to user space, as they come in and as they leave, with their reason. Only objects that are compiled with
 * CULVERT_CAPTURE have this. Their programs take the place of those that run while somebody captures, with the same maps
 * and constants (internal/capture/captureplane).
 *
 * A packet is selected if the expression matches the frame that comes in, or the frame that goes out. One that the
 * expression matches on its way out only has no record of its way in.
 *
 * The program in front looks at a packet as it comes in (capture_hand_on), and tells the program behind it what it has
 * found. rx and the worker look at the others (capture_in). Whichever decides shows what becomes of the packet.
 */

#ifdef CULVERT_CAPTURE

/* The most interfaces that a capture can be limited to. Shared with captureplane. */
#define CAPTURE_INTERFACES 8

/* How many bytes of a frame are shown as it comes in, and as it goes out. */
const volatile __u32 capture_in_bytes;
const volatile __u32 capture_out_bytes;
/* One packet of so many that match is selected. */
const volatile __u32 capture_sample = 1;
/* The indexes of the interfaces that the capture is limited to, 0 after the last. All 0: no limit. */
const volatile __u32 capture_interfaces[CAPTURE_INTERFACES];

enum capture_kind {
	CAPTURE_IN, /* a frame that has come in */
	CAPTURE_OUT, /* its reason, and the frame if it goes out */
	CAPTURE_ENQUEUED, /* in the queue of a worker, where the packet comes in once more */
};

/* What is said of a packet, in front of the bytes of its frame. */
struct capture_record {
	__u64 time; /* CLOCK_MONOTONIC, ns */
	__u64 id; /* the same in all records of a packet on one CPU */
	__u32 kind; /* enum capture_kind */
	__u32 reason; /* enum reason; 0 unless CAPTURE_OUT */
	__u32 ingress; /* index of the interface that it came in by */
	__u32 egress; /* index of the interface that it goes out by, or 0 */
	__u32 len; /* of the frame, bytes */
	__u32 shown; /* how many bytes of it follow */
};

/* What has been found about a packet as it came in. */
enum capture_state {
	CAPTURE_UNSEEN, /* nothing: the program in front has not looked */
	CAPTURE_OTHER, /* the expression does not match */
	CAPTURE_SELECTED,
	CAPTURE_LEFT_OUT, /* the expression matches, and the packet is not the one of so many */
};

/* What a CPU knows of the packet that it is processing. */
struct capture_packet {
	__u64 id;
	__u64 lost; /* records that user space had no room for */
	__u32 handed; /* enum capture_state, from the program in front to rx */
	__u32 unused;
	struct capture_record record; /* here, because the stack is short */
};

/* Key: 0. Writers: the programs. */
struct {
	__uint(
	type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(
	max_entries, 1);
	__type(key, __u32);
	__type(value, struct capture_packet);
} capture_packets SEC(".maps");

/* The buffers that records go to. Key: CPU. Writer: the process that captures. */
struct {
	__uint(
	type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(
	key_size, sizeof(__u32));
	__uint(
	value_size, sizeof(__u32));
} capture_events SEC(".maps");

/* These keep the types in the BTF. */
const enum capture_kind *capture_kinds __attribute__((unused));
const struct capture_record *capture_records __attribute__((unused));

/* The expression. User space replaces this body by its code. */
__noinline int capture_match(struct xdp_md *ctx)
{
	volatile int answer = ctx->ingress_ifindex;

	return answer;
}

/* Whether an interface is among those that the capture is limited to. */
static __noinline int capture_listed(__u32 ifindex)
{
	for (int i = 0; i < CAPTURE_INTERFACES; i++)
		if (capture_interfaces[i] && capture_interfaces[i] == ifindex)
			return 1;
	return 0;
}

/* Whether the expression matches a frame that comes in or goes out by an interface. */
static __always_inline bool capture_matches(struct xdp_md *ctx, __u32 ifindex)
{
	return (!capture_interfaces[0] || capture_listed(ifindex)) && capture_match(ctx);
}

/* The same for a packet that comes in, whose interface is looked up only if the capture is limited to some. */
static __always_inline bool capture_matches_in(struct xdp_md *ctx)
{
	return (!capture_interfaces[0] || capture_listed(port_dev(ctx->ingress_ifindex))) &&
	       capture_match(ctx);
}

/* A key that is not on the stack of rx, which has no room: Linux 6.1 allows 512 bytes for a chain of calls. */
const volatile __u32 capture_key;

static __always_inline struct capture_packet *capture_packet(void)
{
	return bpf_map_lookup_elem(&capture_packets, (const __u32 *)&capture_key);
}

/* Whether a packet that matches is selected. This is asked once for each packet. */
static __always_inline bool capture_sampled(struct capture_packet *p)
{
	if (capture_sample > 1 && bpf_get_prandom_u32() % capture_sample)
		return false;
	p->id++;
	return true;
}

static __always_inline void capture_show(struct xdp_md *ctx, struct capture_packet *p,
					 const __u32 kind, __u32 reason, __u32 egress)
{
	struct capture_record *r = &p->record;
	__u32 shown = 0;

	r->time = bpf_ktime_get_ns();
	r->id = p->id << 16 | (__u16)bpf_get_smp_processor_id();
	r->kind = kind;
	r->reason = reason;
	r->ingress = port_dev(ctx->ingress_ifindex);
	r->egress = egress;
	r->len = bpf_xdp_get_buff_len(ctx);
	/* A packet that does not go out is unchanged: its way in has shown it. */
	if (kind == CAPTURE_IN)
		shown = capture_in_bytes;
	else if (egress)
		shown = capture_out_bytes;
	if (shown > r->len)
		shown = r->len;
	r->shown = shown;
	if (bpf_perf_event_output(ctx, &capture_events, (__u64)shown << 32 | BPF_F_CURRENT_CPU, r,
				  sizeof(*r)))
		p->lost++;
}

/* Shows a packet that comes in and matches, if it is selected. Returns enum capture_state. */
static __noinline int capture_show_in(struct xdp_md *ctx)
{
	struct capture_packet *p = capture_packet();

	if (!p || !capture_sampled(p))
		return CAPTURE_LEFT_OUT;
	capture_show(ctx, p, CAPTURE_IN, 0, 0);
	return CAPTURE_SELECTED;
}

/*
 * Shows what becomes of a packet: one that is selected, or that matches on its way out only. egress is the interface
 * that it goes out by, or 0.
 */
static __always_inline void capture_show_out(struct xdp_md *ctx, bool selected, __u32 reason,
					     __u32 egress)
{
	struct capture_packet *p = capture_packet();

	if (p && (selected || capture_sampled(p)))
		capture_show(ctx, p, CAPTURE_OUT, reason, egress);
}

/* For the program in front, before it changes the packet. */
static __always_inline void capture_hand_on(struct xdp_md *ctx)
{
	struct capture_packet *p = capture_packet();

	if (!p)
		return;
	p->handed = CAPTURE_OTHER;
	if (capture_matches_in(ctx))
		p->handed = capture_show_in(ctx);
}

/* Returns what the program in front has handed on, and forgets it. */
static __always_inline __u32 capture_handed(void)
{
	struct capture_packet *p = capture_packet();
	__u32 handed = CAPTURE_UNSEEN;

	if (p) {
		handed = p->handed;
		if (handed)
			p->handed = CAPTURE_UNSEEN;
	}
	return handed;
}

/* For rx and the worker, before they change the packet. Returns enum capture_state. */
static __always_inline __u32 capture_in(struct xdp_md *ctx)
{
	__u32 handed = capture_handed();

	if (handed)
		return handed;
	return capture_matches_in(ctx) ? capture_show_in(ctx) : CAPTURE_OTHER;
}

/* For the program in front, once it has decided what becomes of the packet: a frame goes out by the interface that it came in by. */
static __noinline __attribute__((unused)) int capture_front_out(struct xdp_md *ctx, __u32 reason)
{
	__u32 egress = reason < REASON_FWD ? 0 : port_dev(ctx->ingress_ifindex);
	__u32 state = capture_handed();

	if (state == CAPTURE_SELECTED ||
	    (state != CAPTURE_LEFT_OUT && egress && capture_matches(ctx, egress)))
		capture_show_out(ctx, state == CAPTURE_SELECTED, reason, egress);
	return 0;
}

/* Called once the packet is in the queue of a worker. */
static __noinline __attribute__((unused)) int capture_enqueued(struct xdp_md *ctx)
{
	struct capture_packet *p = capture_packet();

	if (p && p->handed == CAPTURE_SELECTED)
		capture_show(ctx, p, CAPTURE_ENQUEUED, 0, 0);
	if (p)
		p->handed = CAPTURE_UNSEEN;
	return 0;
}

#else

static __always_inline void capture_hand_on(struct xdp_md *ctx)
{
}
static __always_inline void capture_front_out(struct xdp_md *ctx, __u32 reason)
{
}
static __always_inline void capture_enqueued(struct xdp_md *ctx)
{
}

#endif

#endif
