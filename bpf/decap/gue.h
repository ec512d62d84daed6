/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_DECAP_GUE_H
#define CULVERT_DECAP_GUE_H

#include "outer.h"

/* The longest piece that bpf_csum_diff takes, and the number of pieces in the longest UDP packet. */
#define DECAP_CHUNK 512
#define DECAP_CHUNKS 128

/* The piece of the packet that this CPU is summing. Writer: the program. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __be32[DECAP_CHUNK / 4]);
} decap_chunk SEC(".maps");

/* The part of the packet that has not been summed. */
struct decap_rest {
	struct xdp_md *ctx;
	__u32 at;
	__u32 len;
	__s64 sum; /* negative after an error */
};

static long decap_add_chunk(__u32 index, struct decap_rest *rest)
{
	__u32 zero = 0, part = rest->len < DECAP_CHUNK ? rest->len : DECAP_CHUNK;
	__be32 *chunk = bpf_map_lookup_elem(&decap_chunk, &zero);

	if (!chunk || !rest->len)
		return 1;
	/* part is from 1 to DECAP_CHUNK. The mask shows this to old verifiers. */
	part--;
	barrier_var(part);
	part &= DECAP_CHUNK - 1;
	barrier_var(part);
	part++;
	if (part & 3) /* the last piece: pad it with zeros */
		chunk[(part / 4) & (DECAP_CHUNK / 4 - 1)] = 0;
	rest->sum = bpf_xdp_load_bytes(rest->ctx, rest->at, chunk, part) ?: rest->sum;
	if (rest->sum < 0)
		return 1;
	rest->at += part;
	rest->len -= part;
	part = (part + 3) & ~3;
	barrier_var(part);
	if (part > DECAP_CHUNK)
		return 1;
	rest->sum = bpf_csum_diff(NULL, 0, chunk, part, rest->sum);
	return rest->sum < 0;
}

/*
 * Whether the UDP checksum is right (RFC 768; RFC 8200, 8.1). All buffers of the frame are read. pseudo is the sum of
 * the outer addresses. It is a global function, which the verifier checks once.
 */
__noinline int decap_udp_checks(struct xdp_md *ctx, __u32 at, __u32 len, __u32 pseudo)
{
	struct decap_rest rest = {ctx, at, len,
				  (__u64)pseudo + bpf_htons(IPPROTO_UDP) + bpf_htons(len)};

	bpf_loop(DECAP_CHUNKS, decap_add_chunk, &rest, 0);
	return rest.sum >= 0 && !rest.len && csum_fold(rest.sum) == 0xffff;
}

/* Finds the packet inside GUE. In variant 1 it follows the UDP header, in variant 0 a header of GUE. */
static __always_inline __u32 decap_gue(struct tunnel *t)
{
	struct udphdr *udp = decap_header(t, t->l4, sizeof(*udp));
	struct {
		__u8 first; /* variant: 2 bits, control: 1 bit, length of options in words: 5 bits */
		__u8 proto;
		__be16 flags;
	} *gue;
	__u32 len;

	if (!udp)
		return PASS_MALFORMED;
	len = bpf_ntohs(udp->len);
	if (len < sizeof(*udp) || t->l4 + len > t->end)
		return PASS_MALFORMED;
	t->end = t->l4 + len;
	t->inner = t->l4 + sizeof(*udp);
	gue = decap_header(t, t->inner, sizeof(*gue));
	if (!gue || len < sizeof(*udp) + sizeof(*gue))
		return PASS_MALFORMED;
	switch (gue->first >> 4) {
	case 4:
		t->proto = IPPROTO_IPIP;
		break;
	case 6:
		t->proto = IPPROTO_IPV6;
		break;
	case 0:
	case 1: /* variant 0 with 16 words of options or more: the upper bit of their length is in this half */
		if (gue->flags || (gue->proto != IPPROTO_IPIP && gue->proto != IPPROTO_IPV6))
			return PASS_GUE;
		t->proto = gue->proto;
		t->inner += sizeof(*gue) + 4 * (gue->first & 0x1f);
		break;
	default:
		return PASS_GUE;
	}
	if (udp->check && !decap_udp_checks(t->ctx, t->l4, len, t->pseudo))
		return PASS_CHECKSUM;
	return DECAP_FOUND;
}

#endif
