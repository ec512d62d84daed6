// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "stages.h"

#include "core/counters.h"
#include "core/packet.h"

/* The address of this host's end of the tunnel. Fixed at load time. */
const volatile __be32 example_local;

/* The next program. Writer: datapath, before this program is attached. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} example_rest SEC(".maps");

/* Counts and drops a packet. */
static __always_inline int example_leave(struct xdp_md *ctx, __u32 reason)
{
	struct port *port = port_at(ctx->ingress_ifindex);

	if (port)
		count(port->slot - 1, reason, bpf_xdp_get_buff_len(ctx));
	return XDP_DROP;
}

/* Removes the outer header of IPv4 in IPv4 (RFC 2003). The next program gets the inner packet. */
SEC("xdp.frags")
int example_front(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	const __u32 outer = sizeof(struct iphdr);
	void *ip = data + ETH_HLEN;
	struct {
		__u8 bytes[ETH_HLEN];
	} eth;

	if (ip + outer > data_end || LOAD16(data + 12) != bpf_htons(ETH_P_IP) ||
	    LOAD8(ip) != 0x45 || LOAD8(ip + 9) != IPPROTO_IPIP || LOAD32(ip + 16) != example_local)
		goto next;
	if (bpf_ntohs(LOAD16(ip + 2)) < outer + sizeof(struct iphdr) ||
	    ip + outer + sizeof(struct iphdr) > data_end || (LOAD8(ip + outer) & 0xf0) != 0x40)
		return example_leave(ctx, DROP_EXAMPLE_TUNNEL);
	copy(&eth, data, ETH_HLEN);
	if (bpf_xdp_adjust_head(ctx, outer))
		return example_leave(ctx, DROP_EXAMPLE_TUNNEL);
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	if (data + ETH_HLEN > data_end)
		return example_leave(ctx, DROP_EXAMPLE_TUNNEL);
	copy(data, &eth, ETH_HLEN);
next:
	bpf_tail_call(ctx, &example_rest, 0);
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
