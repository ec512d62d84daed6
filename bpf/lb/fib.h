/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_FIB_H
#define CULVERT_LB_FIB_H

#include "core/packet.h"

#ifndef AF_INET
#define AF_INET 2
#define AF_INET6 10
#endif

/* Whether the kernel would forward a packet that came in by the device dev. end is the end of the first buffer. */
static __always_inline bool lb_kernel_forwards(struct xdp_md *ctx, const void *ip, const void *end,
					       bool v4, __u32 dev)
{
	struct bpf_fib_lookup fib __attribute__((aligned(8))) = {};

	fib.ifindex = dev;
	if (v4) {
		if (ip + 20 > end)
			return false;
		fib.family = AF_INET;
		fib.tos = LOAD8(ip + 1);
		fib.l4_protocol = LOAD8(ip + 9);
		fib.ipv4_src = LOAD32(ip + 12);
		fib.ipv4_dst = LOAD32(ip + 16);
	} else {
		if (ip + 40 > end)
			return false;
		fib.family = AF_INET6;
		fib.flowinfo = LOAD32(ip) & bpf_htonl(0x0fffffff);
		fib.l4_protocol = LOAD8(ip + 6);
		copy(fib.ipv6_src, ip + 8, 16);
		copy(fib.ipv6_dst, ip + 24, 16);
	}
	switch (bpf_fib_lookup(ctx, &fib, sizeof(fib), 0)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
	case BPF_FIB_LKUP_RET_NO_NEIGH:
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
	case BPF_FIB_LKUP_RET_UNSUPP_LWT:
		return true;
	}
	return false; /* it is to this host, there is no route, or forwarding is off */
}

#endif
