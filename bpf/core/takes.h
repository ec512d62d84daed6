/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_TAKES_H
#define CULVERT_CORE_TAKES_H

#include "next_hop.h"

/*
 * Where no port takes frames of several buffers, because the kernel is too old: the first of several buffers has at least
 * that many bytes. 0 on other kernels. The drivers of the old ones fill a buffer before they begin another. The
 * smallest are those of enetc: half a page, less 256 bytes in front and 320 behind. The outer headers that a program in
 * front may have taken off fit in between.
 */
const volatile __u32 one_buffer_below;

/*
 * Whether the port takes the frame: some ports take no frames of several buffers. len is the length of its first buffer, or
 * more. Most frames are so short that no other follows, and are saved the call.
 */
static __always_inline bool next_hop_takes(struct xdp_md *ctx, const struct next_hop *hop,
					   __u32 len)
{
	return !hop->linear_only || len < one_buffer_below || one_buffer(ctx);
}

#endif
