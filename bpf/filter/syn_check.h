/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_SYN_CHECK_H
#define CULVERT_FILTER_SYN_CHECK_H

#include "core/checksum.h"

#include "flow_keys.h"

/* TCP flags, and those of them that decide what a packet means to a listener. */
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define SYN_FLAGS (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK)

#define TCP_HEADER_MAX 60

/* The options of a SYN. */
struct syn_options {
	__u32 at; /* the offset up to which syn_options has read */
	__u32 header; /* length of the TCP header, bytes */
	__u32 ts; /* as in the packet, network order */
	__u16 mss;
	__u8 wscale;
	__u8 has_mss;
	__u8 has_ts;
	__u8 has_sack;
	__u8 has_wscale;
	__u8 pad;
};

/* A packet to a protected service, and the answer to it. Fields are in host order unless their type says otherwise. */
struct syn {
	__u64 l3; /* offset of the IP header from data, bytes; the verifier forgets bounds of narrower fields */
	__u64 l4;
	__u32 tcp_len; /* of header and data, bytes */
	__u32 header; /* length of the TCP header, bytes */
	__be32 seq;
	__u8 flags;
	__u8 v6;
	struct syn_options opt; /* the verifier does not track these values */
	/* of the answer */
	__u32 cookie;
	__be32 ts; /* options other than the MSS are sent only with opt.has_ts */
	__u16 mss;
	__u16 window;
	__u8 wscale;
};

/* Whether the source is one that no packet may have. The kernel drops such packets. */
static __always_inline bool syn_martian(const struct flow_keys *keys)
{
	__u8 first = keys->src.w[keys->ip == 4 ? 3 : 0] & 0xff;

	if (keys->src.w[3] == keys->dst.w[3] && keys->src.w[2] == keys->dst.w[2] &&
	    keys->src.w[1] == keys->dst.w[1] && keys->src.w[0] == keys->dst.w[0])
		return true;
	if (keys->ip == 4)
		return first == 0 || first == 127 || first >= 224;
	return first == 0xff || !(keys->src.w[0] | keys->src.w[1]);
}

/*
 * Whether a packet is plain TCP to this interface: in one buffer, no fragment, no IPv4 options, no extension headers.
 * Fills in syn, except for the options and the answer.
 */
static __always_inline bool syn_checks(struct xdp_md *ctx, const struct flow_keys *keys,
				       struct syn *syn)
{
	const void *data = (void *)(long)ctx->data;
	const void *data_end = (void *)(long)ctx->data_end;
	struct port *port = port_at(ctx->ingress_ifindex);
	__u32 ip_header, len;
	const void *ip, *tcp;
	__u64 l3;

	if (!port || bpf_xdp_get_buff_len(ctx) != (__u64)(data_end - data))
		return false;
	/* In promiscuous mode frames to other hosts come in too. */
	if (data + ETH_HLEN > data_end || LOAD32(data) != LOAD32(port->mac) ||
	    LOAD16(data + 4) != port->mac[2])
		return false;
	syn->v6 = keys->ip == 6;
	ip_header = syn->v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	l3 = keys->l3;
	if (l3 > ETH_HLEN + KEYS_TAGS * VLAN_HLEN || keys->l4 != l3 + ip_header)
		return false;
	/* The mask changes nothing. It gives the stored value a bound that the verifier keeps. */
	barrier_var(l3);
	l3 &= 31;
	syn->l3 = l3;
	syn->l4 = l3 + ip_header;
	ip = data + l3;
	tcp = ip + ip_header;
	if (ip + sizeof(struct iphdr) > data_end || tcp + sizeof(struct tcphdr) > data_end)
		return false;
	if (syn->v6) {
		len = bpf_ntohs(LOAD16(ip + 4));
	} else {
		if (LOAD16(ip + 6) & bpf_htons(0x3fff) || !ipv4_checks(ip))
			return false;
		len = bpf_ntohs(LOAD16(ip + 2)) - sizeof(struct iphdr);
	}
	syn->tcp_len = len;
	syn->header = (LOAD8(tcp + 12) >> 4) * 4;
	if (syn->header < sizeof(struct tcphdr) || syn->header > len)
		return false;
	syn->flags = LOAD8(tcp + 13);
	syn->seq = LOAD32(tcp + 4);
	return !syn_martian(keys);
}

#endif
