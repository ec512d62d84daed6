/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_DECAP_TUNNEL_H
#define CULVERT_DECAP_TUNNEL_H

#include "core/checksum.h"

#include "reasons.h"

/*
 * What becomes of a packet. The prefix is the verdict:
 *
 *   PASS_   to the kernel, unchanged
 *   DROP_   dropped, as the end of a tunnel has to (RFC 6040)
 *   DECAP_  the outer headers were removed, the rest goes to the kernel
 *
 * User space learns names and numbers from the BTF of this enum. A new reason goes to the end: counters outlive an
 * upgrade, so a number keeps its meaning.
 */
#define DECAP_ROOM 32

#define DECAP_VALUE(verdict, NAME, text) verdict##_##NAME,

enum decap_reason {
	DECAP_REASONS(DECAP_VALUE) DECAP_REASON_COUNT
};
_Static_assert(DECAP_REASON_COUNT <= DECAP_ROOM,
	       "decap/reasons.h has more reasons than DECAP_ROOM");

/* This use keeps the enum in the BTF. */
const enum decap_reason *decap_reason_names __attribute__((unused));

struct decap_counter {
	__u64 packets;
	__u64 bytes;
};

/* Key: reason. Writer: the program. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DECAP_ROOM);
	__type(key, __u32);
	__type(value, struct decap_counter);
} decap_counters SEC(".maps");

/* An IPv6 address, or an IPv4 address mapped into one (RFC 4291, 2.5.5.2); network order. */
struct decap_addr {
	__be32 w[4];
};

struct decap_prefix {
	__u32 bits; /* length of the prefix; for IPv4 it includes the 96 bits in front of the address */
	struct decap_addr addr;
};

/*
 * Outer destinations that are addresses of this host. Writer of this and the next two maps: decapplane, before it
 * attaches the program.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct decap_addr);
	__type(value, __u8);
} decap_local SEC(".maps");

/* Outer sources that are allowed. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct decap_prefix);
	__type(value, __u8);
} decap_from SEC(".maps");

/* Inner destinations that are allowed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct decap_addr);
	__type(value, __u8);
} decap_vips SEC(".maps");

/* Fixed at load time. */
const volatile __u16 decap_mac[3]; /* of the interface, as it stands in frames */
const volatile __be16 decap_gue_port;
const volatile bool decap_by_source; /* whether only sources in decap_from are allowed */
const volatile bool decap_by_vip; /* whether only destinations in decap_vips are allowed */

/* What has been read so far. Offsets are from data, in bytes. */
struct tunnel {
	struct xdp_md *ctx;
	__u32 len; /* of the frame */
	__u32 l2; /* length of the Ethernet header with its tag */
	__u32 l4; /* offset of what follows the outer IP header and its options */
	__u32 end; /* end of what the outer headers contain */
	__u32 inner;
	__u32 pseudo; /* sum of the outer addresses, for UDP */
	__u8 proto; /* outer, then inner: IPPROTO_IPIP or IPPROTO_IPV6 */
	__u8 ecn; /* of the outer header */
	bool gue;
	bool fragment;
	bool options;
	struct decap_addr src; /* of the outer header */
	struct decap_addr dst;
};

#define DECAP_ECN 3 /* bits of the TOS byte: 0 not capable, 1 ECT(1), 2 ECT(0) */
#define DECAP_ECT1 1
#define DECAP_CE 3

/* The farthest offset of a header: Ethernet, tag, IPv4 with options, UDP, GUE with options. */
#define DECAP_FARTHEST 0x1ff

/* Returns a header, NULL if the first buffer does not have all of it. */
static __always_inline void *decap_header(const struct tunnel *t, __u32 at, __u32 size)
{
	void *p;

	barrier_var(at); /* keeps the test, which clang would drop if it could prove it */
	if (at > DECAP_FARTHEST)
		return NULL;
	p = (void *)(long)t->ctx->data + at;
	return p + size > (void *)(long)t->ctx->data_end ? NULL : p;
}

static __always_inline struct decap_addr decap_addr4(__be32 a)
{
	return (struct decap_addr){{0, 0, bpf_htonl(0xffff), a}};
}

#endif
