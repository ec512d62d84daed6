/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_LOAD_H
#define CULVERT_FILTER_LOAD_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* The result of filter_load if the frame is too short. */
#define FILTER_LOAD_SHORT (1ULL << 32)

/*
 * Reads 1, 2 or 4 bytes of the frame, from any of its buffers, in host order. Rules call it when the first buffer ends
 * before the field (internal/filter/cbpf). bpf_xdp_load_bytes reads up to offset 65,535.
 */
__noinline __u64 filter_load(struct xdp_md *ctx, __u32 off, __u32 size)
{
	union {
		__u8 b;
		__be16 h;
		__be32 w;
	} v = {};

	switch (size) {
	case 1:
		return bpf_xdp_load_bytes(ctx, off, &v, 1) ? FILTER_LOAD_SHORT : v.b;
	case 2:
		return bpf_xdp_load_bytes(ctx, off, &v, 2) ? FILTER_LOAD_SHORT : bpf_ntohs(v.h);
	default:
		return bpf_xdp_load_bytes(ctx, off, &v, 4) ? FILTER_LOAD_SHORT : bpf_ntohl(v.w);
	}
}

#endif
