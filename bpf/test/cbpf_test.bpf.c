// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "filter/load.h"

/* For the tests alone: the result of each translated program for the packet. */
__u8 verdicts[512];

/* The test replaces this body by translated programs (cbpf.ReplaceFunction). */
__noinline int filter_rules(struct xdp_md *ctx)
{
	return filter_load(ctx, 0, 1);
}

SEC("xdp.frags")
int run(struct xdp_md *ctx)
{
	filter_rules(ctx);
	verdicts[0] |= 0x80;
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
