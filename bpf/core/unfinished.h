/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_UNFINISHED_H
#define CULVERT_CORE_UNFINISHED_H

#include "checksum.h"
#include "packet.h"

/*
 * Finishes checksums that the sender has left to the card. Software devices hand such packets on as they are: the
 * checksum field of TCP or UDP has the sum of the pseudo header, and the kernel knows that the rest is missing. After a
 * CPUMAP it does not, and would take the packet for a broken one. So a worker does what the kernel would do when the
 * packet leaves the host (skb_checksum_help). A finished checksum that happens to have this value is not changed.
 */

/* Bytes that are summed at a time. */
#define UNFINISHED_STEP 64

struct unfinished {
	struct xdp_md *ctx;
	__u32 at; /* offset of what is to be summed, bytes */
	__u32 left; /* its length, bytes */
	__u32 sum;
	bool failed;
};

/* Adds the next bytes. Returns 1 at the end. */
static long unfinished_add(__u32 i, struct unfinished *u)
{
	__u32 buf[UNFINISHED_STEP / 4] = {};
	__u32 n = u->left;

	if (!n)
		return 1;
	if (n > UNFINISHED_STEP)
		n = UNFINISHED_STEP;
	/* The verifier of Linux 6.1 does not learn from the test above that n is not 0, but it does from this. */
	n--;
	barrier_var(n);
	n = (n & (UNFINISHED_STEP - 1)) + 1;
	if (bpf_xdp_load_bytes(u->ctx, u->at, buf, n)) {
		u->failed = true;
		return 1;
	}
	u->sum = bpf_csum_diff(NULL, 0, buf, sizeof(buf), u->sum);
	u->at += n;
	u->left -= n;
	return 0;
}

/* The sum of the pseudo header of TCP or UDP, folded, and where the header is. Returns 0 for any other packet. */
static __always_inline __u16 unfinished_pseudo(const void *data, const void *data_end,
					       struct unfinished *u, __u8 *proto)
{
	const void *ip = data + ETH_HLEN;
	__be16 type;
	__u64 sum;

	if (ip > data_end)
		return 0;
	type = LOAD16(data + 12);
	u->at = ETH_HLEN;
	if (type == bpf_htons(ETH_P_8021Q)) {
		if (ip + VLAN_HLEN > data_end)
			return 0;
		type = LOAD16(ip + 2);
		ip += VLAN_HLEN;
		u->at += VLAN_HLEN;
	}
	if (type == bpf_htons(ETH_P_IP)) {
		if (ip + sizeof(struct iphdr) > data_end || LOAD8(ip) != 0x45 ||
		    LOAD16(ip + 6) & bpf_htons(0x3fff))
			return 0;
		u->left = bpf_ntohs(LOAD16(ip + 2)) - sizeof(struct iphdr);
		*proto = LOAD8(ip + 9);
		sum = (__u64)LOAD32(ip + 12) + LOAD32(ip + 16);
		u->at += sizeof(struct iphdr);
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		if (ip + sizeof(struct ipv6hdr) > data_end)
			return 0;
		u->left = bpf_ntohs(LOAD16(ip + 4));
		*proto = LOAD8(ip + 6);
		sum = ipv6_sum(ip + 8) + ipv6_sum(ip + 24);
		u->at += sizeof(struct ipv6hdr);
	} else {
		return 0;
	}
	if ((*proto != IPPROTO_TCP && *proto != IPPROTO_UDP) || u->left > 0xffff)
		return 0;
	return csum_fold(sum + bpf_htons(*proto) + bpf_htons(u->left));
}

/* Finishes the checksum of a packet that the kernel gets from a worker, if it has to be. */
static __noinline int unfinished_finish(struct xdp_md *ctx)
{
	struct unfinished u = {.ctx = ctx};
	__u32 ifindex = ctx->ingress_ifindex;
	const struct port *port = bpf_map_lookup_elem(&ports, &ifindex);
	__u8 proto = 0;
	__u16 pseudo, check;
	__u32 field;

	if (!port || !(port->spread & PORT_UNFINISHED))
		return 0;
	pseudo =
		unfinished_pseudo((void *)(long)ctx->data, (void *)(long)ctx->data_end, &u, &proto);
	field = u.at + (proto == IPPROTO_TCP ? 16 : 6);
	if (!pseudo || bpf_xdp_load_bytes(ctx, field, &check, sizeof(check)) || check != pseudo)
		return 0;
	bpf_loop(0xffff / UNFINISHED_STEP + 1, unfinished_add, &u, 0);
	check = ~csum_fold(u.sum);
	if (!check)
		check = 0xffff;
	if (!u.failed)
		bpf_xdp_store_bytes(ctx, field, &check, sizeof(check));
	return 0;
}

#endif
