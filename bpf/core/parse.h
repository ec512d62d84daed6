/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_PARSE_H
#define CULVERT_CORE_PARSE_H

#include "checksum.h"
#include "packet.h"
#include "sflow.h"

static __always_inline void parse_udp(struct packet *pkt, void *udp, __u32 l4_len)
{
	if (udp + sizeof(struct udphdr) > pkt->data_end)
		return;
	/* For a shorter UDP length the kernel would trim the packet. Packets with another UDP length are left to it. */
	if (bpf_ntohs(LOAD16(udp + 4)) != l4_len)
		return;
	pkt->sport = LOAD16(udp);
	pkt->dport = LOAD16(udp + 2);
	pkt->check = LOAD16(udp + 6);
	pkt->l4_len = l4_len;
	pkt->udp = true;
}

/*
 * Whether the frame has that many bytes. The length of the whole frame costs a call, which is made only if the first
 * buffer is shorter.
 */
static __always_inline bool frame_holds(struct xdp_md *ctx, struct packet *pkt, __u32 len)
{
	if (len > pkt->len)
		pkt->len = bpf_xdp_get_buff_len(ctx);
	return len <= pkt->len;
}

static __always_inline void parse_ipv4(struct xdp_md *ctx, struct packet *pkt, const __u32 l3,
				       __u32 needs)
{
	void *ip = pkt->data + l3;
	__u32 len;

	if (ip + sizeof(struct iphdr) > pkt->data_end)
		return;
	if (needs & PARSE_IP) {
		pkt->ip = 4;
		pkt->l3 = l3;
		pkt->proto = LOAD8(ip + 9);
		pkt->fragment = LOAD16(ip + 6) & bpf_htons(0x3fff);
		pkt->no_fwd_reason = NO_FWD_MALFORMED;
		if (LOAD8(ip) > 0x45 && LOAD8(ip) < 0x50)
			pkt->no_fwd_reason = NO_FWD_OPTIONS;
		if (LOAD8(ip) != 0x45)
			return;
	} else if (LOAD8(ip) != 0x45 || LOAD16(ip + 6) & bpf_htons(0x3fff) ||
		   LOAD8(ip + 9) != IPPROTO_UDP) {
		return; /* options, a fragment, not UDP */
	}
	len = bpf_ntohs(LOAD16(ip + 2));
	if (len < sizeof(struct iphdr) + (needs & PARSE_IP ? 0 : sizeof(struct udphdr)) ||
	    !frame_holds(ctx, pkt, l3 + len))
		return;
	if (!ipv4_checks(ip))
		return;
	pkt->ip_len = len;
	pkt->no_fwd_reason = NO_FWD_NONE;
	if (!(needs & PARSE_UDP) || l3 != ETH_HLEN)
		return;
	if (needs & PARSE_IP && (pkt->fragment || pkt->proto != IPPROTO_UDP ||
				 len < sizeof(struct iphdr) + sizeof(struct udphdr)))
		return;
	parse_udp(pkt, ip + sizeof(struct iphdr), len - sizeof(struct iphdr));
}

static __always_inline void parse_ipv6(struct xdp_md *ctx, struct packet *pkt, const __u32 l3,
				       __u32 needs)
{
	void *ip = pkt->data + l3;
	__u32 len;

	if (ip + sizeof(struct ipv6hdr) > pkt->data_end)
		return;
	if (needs & PARSE_IP) {
		pkt->ip = 6;
		pkt->l3 = l3;
		pkt->proto = LOAD8(ip + 6);
		pkt->no_fwd_reason = NO_FWD_MALFORMED;
	} else if (LOAD8(ip + 6) != IPPROTO_UDP) {
		return;
	}
	if ((LOAD8(ip) & 0xf0) != 0x60)
		return;
	len = bpf_ntohs(LOAD16(ip + 4));
	if ((!(needs & PARSE_IP) && len < sizeof(struct udphdr)) ||
	    !frame_holds(ctx, pkt, l3 + sizeof(struct ipv6hdr) + len))
		return;
	pkt->ip_len = sizeof(struct ipv6hdr) + len;
	pkt->no_fwd_reason = NO_FWD_NONE;
	if (needs & PARSE_IP && pkt->proto == IPPROTO_HOPOPTS)
		pkt->no_fwd_reason = NO_FWD_OPTIONS;
	if (!(needs & PARSE_UDP) || l3 != ETH_HLEN ||
	    (needs & PARSE_IP && (pkt->proto != IPPROTO_UDP || len < sizeof(struct udphdr))))
		return;
	pkt->v6 = true;
	parse_udp(pkt, ip + sizeof(struct ipv6hdr), len);
	/* UDP over IPv6 without a checksum is not plain UDP (RFC 8200, 8.1). */
	if (!pkt->check)
		pkt->udp = false;
}

/* Parses a frame with one 802.1Q tag. Frames with more tags, or with an 802.1ad tag, are left to the kernel. */
static __always_inline void parse_vlan(struct xdp_md *ctx, struct packet *pkt, __u32 needs)
{
	__u16 id;

	if (pkt->data + ETH_HLEN + VLAN_HLEN > pkt->data_end)
		return;
	id = bpf_ntohs(LOAD16(pkt->data + ETH_HLEN)) & 0xfff;
	if (!id) /* a tag with a priority and no VLAN */
		return;
	pkt->vlan = PACKET_TAGGED + id;
	switch (LOAD16(pkt->data + ETH_HLEN + 2)) {
	case bpf_htons(ETH_P_IP):
		parse_ipv4(ctx, pkt, ETH_HLEN + VLAN_HLEN, needs);
		break;
	case bpf_htons(ETH_P_IPV6):
		parse_ipv6(ctx, pkt, ETH_HLEN + VLAN_HLEN, needs);
		break;
	}
}

/*
 * Adds what a stage needs if the stage is on. The result is constant at load time, so the verifier removes the code for
 * the rest. Without the barrier clang turns the branches into arithmetic, and the verifier could remove nothing.
 */
#define PARSE_NEEDS(name, NAME)        \
	if (NAME##_ON) {               \
		needs |= NAME##_NEEDS; \
		barrier_var(needs);    \
	}

/* Walks the headers once. pkt->udp is set for plain UDP to this interface only. */
static __always_inline void parse(struct xdp_md *ctx, struct packet *pkt)
{
	__u32 needs = 0;
	__u32 ifindex = ctx->ingress_ifindex;
	struct port *port;

	STAGES(PARSE_NEEDS)
	pkt->data = (void *)(long)ctx->data;
	pkt->data_end = (void *)(long)ctx->data_end;
	pkt->len = pkt->data_end - pkt->data;
	port = bpf_map_lookup_elem(&ports, &ifindex);
	if (!port)
		return;
	if (!port->slot) {
		/* A bond takes no frames of a standby member: the kernel drops copies that a switch has flooded. */
		if (port->spread & PORT_STANDBY)
			needs = 0;
		port = port_bond(port);
		if (!port)
			return;
	}
	pkt->port = port;
#ifdef CULVERT_SFLOW
	if (SFLOW_ON && sflow_due(port))
		pkt->sampled = sflow_sample(ctx, port, false);
#endif
	if (!needs || pkt->data + ETH_HLEN > pkt->data_end)
		return;
	/* In promiscuous mode frames to other hosts come in too. They are left to the kernel. */
	if (LOAD32(pkt->data) != LOAD32(port->mac) || LOAD16(pkt->data + 4) != port->mac[2])
		return;
	switch (LOAD16(pkt->data + 12)) {
	case bpf_htons(ETH_P_IP):
		parse_ipv4(ctx, pkt, ETH_HLEN, needs);
		break;
	case bpf_htons(ETH_P_IPV6):
		parse_ipv6(ctx, pkt, ETH_HLEN, needs);
		break;
	case bpf_htons(ETH_P_8021Q):
		if (needs & PARSE_IP)
			parse_vlan(ctx, pkt, needs);
		break;
	}
}

#endif
