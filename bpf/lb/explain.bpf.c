// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "stages.h"

#include "fib.h"

/*
 * Asks the kernel, as the load balancer does, whether it would forward a packet: XDP_TX means yes. The program is
 * attached nowhere. User space runs it on the header of a packet, in the network namespace of the load balancer. The
 * index of the ingress device stands in place of the first four bytes of the MAC addresses.
 */
SEC("xdp")
int lb_onward(struct xdp_md *ctx)
{
	const void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const void *ip = data + ETH_HLEN;

	if (ip + 20 > end)
		return XDP_ABORTED;
	return lb_kernel_forwards(ctx, ip, end, LOAD8(ip) >> 4 == 4, LOAD32(data)) ? XDP_TX
										   : XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
