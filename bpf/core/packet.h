/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_PACKET_H
#define CULVERT_CORE_PACKET_H

#include "bytes.h"
#include "compiler.h"
#include "port.h"

/* An IPv6 address, or an IPv4 address mapped into one (RFC 4291, 2.5.5.2); network order. */
struct ip_addr {
	__be32 w[4];
};

#define IP4_MAPPED bpf_htonl(0x0000ffff)

#define PACKET_TAGGED 0x1000
#define VLAN_HLEN 4

/* Offsets of the addresses from data, bytes. */
#define IPV4_SADDR (ETH_HLEN + 12)
#define IPV4_DADDR (ETH_HLEN + 16)
#define IPV6_SADDR (ETH_HLEN + 8)
#define IPV6_DADDR (ETH_HLEN + 24)

/* What a stage may need of parse(), in its NAME_NEEDS. Only packets to the MAC address of the interface are parsed. */
#define PARSE_UDP 1 /* plain UDP: ports, length and checksum */
/* Any IP packet, with one tag or none: where its header is, and whether it may be forwarded. */
#define PARSE_IP 2
#define NEEDS_REWRITE 4 /* the stage gives packets another destination: rewrite.h */

/* Why a packet must not be forwarded, whatever its destination. */
enum no_fwd_reason {
	NO_FWD_NONE,
	NO_FWD_MALFORMED, /* a header that the kernel drops, or that was cut off */
	NO_FWD_OPTIONS, /* IPv4 options, IPv6 hop-by-hop options */
};

/*
 * Whether any stage of this object gives packets another destination. The preprocessor decides, so that other objects
 * pay nothing.
 */
#define REWRITE_NEEDED(name, NAME) | (NAME##_NEEDS & NEEDS_REWRITE)
#define MAY_REWRITE (0 STAGES(REWRITE_NEEDED))

/* The new destination of a packet: rewrite.h. */
struct rewrite {
	__be16 port;
	bool on;
	struct ip_addr addr;
};

/*
 * The result of parse(), and what stages leave to later stages and to the verdict. The verifier compares what it knows of the stack
 * by 8 bytes, so what is done with after one stage does not share 8 bytes with what later stages read.
 */
struct packet {
	void *data;
	void *data_end;
	/* with PARSE_IP only */
	__u32 ip_len; /* header and payload, bytes */
	/* always */
	__u32 len; /* of the frame, bytes; of its first buffer alone until something needs the whole length */
	struct port *port; /* of the ingress interface, NULL if the data plane is not on it */
	/* with PARSE_UDP only */
	bool udp; /* plain UDP: no fragment, no options, no extension headers */
	bool v6;
	__u16 check; /* of UDP, as it stands in the header */
	__u32 l4_len; /* UDP header and payload, bytes */
	__be16 sport;
	__be16 dport;
#ifdef CULVERT_SFLOW
	/* enum capture_state and enum sflow_kind. Here they take no room. */
	__u16 captured;
	__u16 sampled;
#endif
#if MAY_REWRITE
	__u32 domain; /* as below */
#endif
	/* with PARSE_IP only */
	__u8 unused __attribute__((aligned(8))); /* 0: see packet_forget */
	__u8 proto; /* protocol of IPv4, or next header of IPv6 */
	__u8 ip; /* version, 4 or 6; 0: no IP packet to this interface */
	__u8 l3; /* offset of its header from data, bytes */
	bool fragment; /* of IPv4 */
	__u8 no_fwd_reason; /* enum no_fwd_reason */
	__u16 vlan; /* PACKET_TAGGED + VLAN ID of its only tag, or 0 */
	/* set by stages */
	__u32 egress; /* index of the interface that the frame is redirected to */
#if MAY_REWRITE
	struct rewrite rewrite;
#else
	__u32 domain; /* the domain that is charged for a punt; 0: the hosts behind the ingress interface */
#endif
};

/*
 * Makes the verifier forget what it knows of the packet's IP fields, so that it looks at what follows once, and not again for each way
 * in which parse() may end. It is a matter of 8 bytes that are loaded and stored again. The verifier of Linux 6.1 refuses to load
 * them if it knows the values of the first of them and a 0 behind it: hence unused.
 */
static __always_inline void packet_forget(struct packet *pkt)
{
	volatile __u64 *len = (volatile __u64 *)&pkt->ip_len, *ip = (volatile __u64 *)&pkt->unused;

	*len = *len;
	*ip = *ip;
}

#if MAY_REWRITE
/* The verifier refuses unaligned accesses to the stack. */
_Static_assert(__builtin_offsetof(struct packet, rewrite.addr) % 8 == 0,
	       "addr is copied by 8 bytes");
#endif

/* Whether the source of a frame is a group address (IEEE 802.3, 3.2.3), to which no answer may go. */
static __always_inline bool from_group(const void *data)
{
	return LOAD8(data + 6) & 1;
}

#endif
