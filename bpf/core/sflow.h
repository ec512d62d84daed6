/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_SFLOW_H
#define CULVERT_CORE_SFLOW_H

#include "compiler.h"
#include "port.h"
#include "reason.h"

/*
 * Samples packets for sFlow, and tells of dropped ones. Only objects that are compiled with CULVERT_SFLOW have this: they
 * are loaded if the configuration has [sflow]. The objects of a capture have it too, so that a capture keeps it.
 *
 * Each packet that is counted for an interface is sampled with the probability 1/N, whatever becomes of it, and whatever
 * became of others. No random number is drawn for each packet. Each CPU counts down to the next packet of an interface
 * that is sampled. How many packets lie before it is drawn from the geometric distribution, which comes to the same.
 */

#ifdef CULVERT_SFLOW

/* The most bytes of a frame that are shown, a power of 2. Shared with sflowplane. */
#define SFLOW_HEADER 256
/* How many bytes of the frame that goes out are shown behind it. They tell where it goes: to which MAC and IP address. */
#define SFLOW_OUT 64

const volatile bool sflow_on;
/* How many bytes of a frame are shown, 1 to SFLOW_HEADER. */
const volatile __u32 sflow_header;
/* How many dropped packets a CPU may tell of in a second; 0: none. */
const volatile __u32 sflow_drops;
/* The scale of the geometric distribution: factor / 2^(shift - SFLOW_LOG_BITS). 0 samples all packets. */
const volatile __u32 sflow_factor;
const volatile __u32 sflow_shift;

#ifdef CULVERT_CAPTURE
#define SFLOW_ON sflow_on
#else
#define SFLOW_ON true
#endif

/* Why a packet is shown. */
enum sflow_kind {
	SFLOW_SAMPLED = 1, /* it was sampled */
	SFLOW_DISCARDED = 2, /* it was dropped */
};

/* The packets of an interface on a CPU. */
struct sflow_count {
	__u64 left; /* how many packets there are until one is sampled, which is among them */
	__u64 drawn; /* what left was when it was drawn */
	__u64 pool; /* packets up to the last one that was sampled */
	__u64 samples;
	__u64 lost; /* samples for which user space had no room */
	__u64 discards; /* packets that were dropped; 0 unless sflow_drops */
};

/* What is said of a packet. */
struct sflow_record {
	__u64 pool; /* this and the next are of struct sflow_count */
	__u64 lost;
	__u64 discards;
	__u32 kind; /* enum sflow_kind, one or both */
	__u32 reason; /* enum reason */
	__u32 ingress; /* index of the interface that it came in by */
	__u32 egress; /* index of the interface that it goes out by, or 0 */
	__u32 cpu;
	__u32 len; /* of the frame that came in, bytes */
	__u32 shown; /* bytes in header */
	__u32 out; /* bytes of the frame that goes out, behind sflow_header bytes of header */
	__u8 header[SFLOW_HEADER]; /* the first bytes of the frame that came in */
};

/* What a CPU works with. */
struct sflow_packet {
	__u64 second; /* in which dropped packets were last shown */
	__u64 shown; /* how many dropped packets were shown in it */
	struct sflow_record record; /* here, because the stack is short */
};

/* Key: slot of the interface's struct port. Writers: sflowplane before the first packet, then the programs. */
struct {
	__uint(
	type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(
	max_entries, MAX_PORTS + 1);
	__type(key, __u32);
	__type(value, struct sflow_count);
} sflow_counts SEC(".maps");

/* Key: 0. Writers: the programs. */
struct {
	__uint(
	type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(
	max_entries, 1);
	__type(key, __u32);
	__type(value, struct sflow_packet);
} sflow_packets SEC(".maps");

/* The buffers that records go to. Key: CPU. Writer: the process that sends them. */
struct {
	__uint(
	type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(
	key_size, sizeof(__u32));
	__uint(
	value_size, sizeof(__u32));
} sflow_events SEC(".maps");

/* These keep the types in the BTF. */
const enum sflow_kind *sflow_kinds __attribute__((unused));
const struct sflow_record *sflow_records __attribute__((unused));

/* A key that is not on the stack, which has no room. */
const volatile __u32 sflow_key;

/* The bits behind the point of the logarithm. */
#define SFLOW_LOG_BITS 24

/*
 * Draws how many packets there are until one is sampled, which is among them: 1 + floor(log(U) / log(1 - 1/N)), with U
 * uniform in (0, 1]. The logarithm to base 2 is worked out bit by bit, by squaring.
 */
__noinline __u64 sflow_draw(void)
{
	__u64 x = (__u64)bpf_get_prandom_u32() + 1; /* U * 2^32 */
	__u64 whole = 1, part = 0, bit;
	int i;

	if (x >> 32)
		return 1;
	for (i = 16; i; i >>= 1) {
		if (!(x >> (32 - i))) {
			x <<= i;
			whole += i;
		}
	}
	/* x is in [2^31, 2^32) now. */
	for (i = 0; i < SFLOW_LOG_BITS; i++) {
		x = x * x >> 31;
		bit = x >> 32;
		x >>= bit;
		part = part << 1 | bit;
	}
	return 1 + (((whole << SFLOW_LOG_BITS) - part) * sflow_factor >> sflow_shift);
}

/* Whether a packet of an interface is sampled. This is asked once for each packet. The slot is the first member. */
static __always_inline bool sflow_due(const struct port *port)
{
	struct sflow_count *c = bpf_map_lookup_elem(&sflow_counts, port);

	return c && !--c->left;
}

/* Keeps the first bytes of the frame. */
static __always_inline void sflow_keep(struct xdp_md *ctx, struct sflow_record *r)
{
	__u32 len = bpf_xdp_get_buff_len(ctx);
	__u32 shown = sflow_header;

	r->len = len;
	r->shown = 0;
	if (shown > len)
		shown = len;
	/* It is in this range. A comparison does not tell the verifier of 6.1, which then takes 0 for possible. */
	barrier_var(shown);
	shown = ((shown - 1) & (SFLOW_HEADER - 1)) + 1;
	if (!bpf_xdp_load_bytes(ctx, 0, r->header, shown))
		r->shown = shown;
}

/*
 * Samples a packet, before anything changes it, or once sflow_peek() has kept its first bytes. Returns enum sflow_kind.
 */
static __noinline __attribute__((unused)) int sflow_sample(struct xdp_md *ctx, struct port *port,
							   bool kept)
{
	struct sflow_count *c = bpf_map_lookup_elem(&sflow_counts, port);
	struct sflow_packet *p = bpf_map_lookup_elem(&sflow_packets, (const __u32 *)&sflow_key);

	if (!c || !p)
		return 0;
	c->pool += c->drawn;
	c->samples++;
	c->drawn = sflow_draw();
	c->left = c->drawn;
	if (!kept)
		sflow_keep(ctx, &p->record);
	return SFLOW_SAMPLED;
}

/*
 * For the program in front, before it may turn the packet into an answer: keeps the first bytes if the next packet of
 * the interface on this CPU is sampled, which is this one if it goes no further.
 */
static __noinline __attribute__((unused)) int sflow_peek(struct xdp_md *ctx)
{
	__u32 ifindex = ctx->ingress_ifindex;
	struct port *port = port_at(ifindex);
	struct sflow_packet *p;
	struct sflow_count *c;

	if (!port)
		return 0;
	c = bpf_map_lookup_elem(&sflow_counts, port);
	if (!c || c->left != 1)
		return 0;
	p = bpf_map_lookup_elem(&sflow_packets, (const __u32 *)&sflow_key);
	if (p)
		sflow_keep(ctx, &p->record);
	return 0;
}

/* Whether a CPU may tell of one more dropped packet in this second. */
static __always_inline bool sflow_tells(struct sflow_packet *p)
{
	__u64 second = bpf_ktime_get_coarse_ns() / 1000000000;

	if (p->second != second) {
		p->second = second;
		p->shown = 0;
	}
	if (p->shown >= sflow_drops)
		return false;
	p->shown++;
	return true;
}

static __always_inline bool sflow_is_drop(__u32 reason)
{
	return reason >= REASON_LIMITED && reason < REASON_FWD;
}

/* Shows a packet that was sampled, or dropped, or both, with its reason. egress is 0 if it does not go out. */
static __always_inline int sflow_show(struct xdp_md *ctx, struct port *port, __u32 reason,
				      __u32 egress, __u32 kind)
{
	struct sflow_count *c = bpf_map_lookup_elem(&sflow_counts, port);
	struct sflow_packet *p = bpf_map_lookup_elem(&sflow_packets, (const __u32 *)&sflow_key);
	struct sflow_record *r;
	__u64 out = 0;

	if (!c || !p)
		return 0;
	r = &p->record;
	if (sflow_drops && sflow_is_drop(reason)) {
		c->discards++;
		if (sflow_tells(p)) {
			if (!kind)
				sflow_keep(ctx, r);
			kind |= SFLOW_DISCARDED;
		}
	}
	if (!kind)
		return 0;
	if (egress) {
		out = bpf_xdp_get_buff_len(ctx);
		if (out > SFLOW_OUT)
			out = SFLOW_OUT;
	}
	r->pool = c->pool;
	r->lost = c->lost;
	r->discards = c->discards;
	r->kind = kind;
	r->reason = reason;
	r->ingress = port->dev;
	r->egress = egress;
	r->cpu = bpf_get_smp_processor_id();
	r->out = out;
	if (bpf_perf_event_output(ctx, &sflow_events, out << 32 | BPF_F_CURRENT_CPU, r,
				  __builtin_offsetof(struct sflow_record, header) + sflow_header) &&
	    kind & SFLOW_SAMPLED)
		c->lost++;
	return 0;
}

/* Whether a packet is to be shown, once its reason is known. kind is what has been found out as it came in. */
static __always_inline bool sflow_wanted(const struct port *port, __u32 reason, __u32 kind)
{
	return port && (kind || (sflow_drops && sflow_is_drop(reason)));
}

/* This is a call of its own, so that the object of a capture that runs without sFlow keeps its registers. */
static __noinline __attribute__((unused)) int sflow_front(struct xdp_md *ctx, struct port *port,
							  __u32 reason)
{
	__u32 kind = sflow_due(port) ? sflow_sample(ctx, port, reason >= REASON_XMIT) : 0;

	if (!sflow_wanted(port, reason, kind))
		return 0;
	return sflow_show(ctx, port, reason, reason < REASON_FWD ? 0 : port->dev, kind);
}

/*
 * For the program in front, once it has decided what becomes of a packet, which goes out by its own interface if at all.
 * It peeks before each answer.
 */
static __always_inline void sflow_front_out(struct xdp_md *ctx, struct port *port, __u32 reason)
{
	if (SFLOW_ON)
		sflow_front(ctx, port, reason);
}

#else

#define SFLOW_ON false

static __always_inline int sflow_peek(struct xdp_md *ctx)
{
	return 0;
}

static __always_inline void sflow_front_out(struct xdp_md *ctx, struct port *port, __u32 reason)
{
}

#endif

#endif
