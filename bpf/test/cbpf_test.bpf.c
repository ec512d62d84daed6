// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "filter/load.h"

/* For the tests alone: what each of the translated programs says of the packet. */
__u8 verdicts[512];

/* The test puts translated programs in the place of this body (cbpf.ReplaceFunction). */
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
