/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_FLOW_H
#define CULVERT_CORE_FLOW_H

#include "bloom.h"
#include "hash.h"
#include "packet.h"

/* The flow of a packet, by which its worker is selected. */

/* A secret. Without it nobody can predict which flows share a CPU. */
#define FLOW_WORDS 7
const volatile __u32 flow_key[2 * FLOW_WORDS];

/* What is known of a packet's flow. */
enum flow_kind {
	FLOW_OTHER, /* the packet is not the stage's */
	FLOW_STAYS, /* the packet must not wait in a queue */
	FLOW_HASHED,
};

static __always_inline __u64 flow_word(const __u32 i, __u64 w)
{
	return hash_word(flow_key[2 * i], flow_key[2 * i + 1], w);
}

/* Ends a sum of flow_word(). Its upper half is the better one; that of the result is the lower one. */
static __always_inline __u64 flow_sum(__u64 h)
{
	return h ^ h >> 32;
}

/*
 * Ports of IP packets. All fragments of a datagram have to stay in order, and only the first one has the ports: so
 * fragments are hashed without. Other protocols have no ports where TCP and UDP have them.
 */
static __always_inline __u64 flow_ports(const void *l4, const void *data_end, __u8 proto)
{
	if ((proto != IPPROTO_TCP && proto != IPPROTO_UDP) || l4 + 4 > data_end)
		return 0;
	return LOAD32(l4);
}

/* An IP packet, with one tag of a VLAN or none. */
struct flow_ip {
	__u64 hash; /* of the flow, lower half */
	__u32 to; /* bloom_addr() of the destination */
	__u8 proto;
	bool tagged;
};

static __always_inline bool flow_ipv4(const void *ip, const void *data_end, struct flow_ip *f)
{
	__u64 ports = 0;

	/* The kernel handles options. */
	if (ip + sizeof(struct iphdr) > data_end || LOAD8(ip) != 0x45)
		return false;
	f->proto = LOAD8(ip + 9);
	f->to = bloom_addr(0, 0, IP4_MAPPED, LOAD32(ip + 16));
	if (!(LOAD16(ip + 6) & bpf_htons(0x3fff)))
		ports = flow_ports(ip + sizeof(struct iphdr), data_end, f->proto);
	f->hash = flow_word(0, LOAD64(ip + 12)) + flow_word(1, ports | (__u64)f->proto << 32);
	return true;
}

static __always_inline bool flow_ipv6(const void *ip, const void *data_end, struct flow_ip *f)
{
	__u64 ports;

	if (ip + sizeof(struct ipv6hdr) > data_end || (LOAD8(ip) & 0xf0) != 0x60)
		return false;
	f->proto = LOAD8(ip + 6);
	if (f->proto == IPPROTO_HOPOPTS)
		return false;
	f->to = bloom_addr(LOAD32(ip + 24), LOAD32(ip + 28), LOAD32(ip + 32), LOAD32(ip + 36));
	ports = flow_ports(ip + sizeof(struct ipv6hdr), data_end, f->proto);
	f->hash = flow_word(0, LOAD64(ip + 8)) + flow_word(1, LOAD64(ip + 16)) +
		  flow_word(2, LOAD64(ip + 24)) + flow_word(3, LOAD64(ip + 32)) +
		  flow_word(4, ports | (__u64)f->proto << 32);
	return true;
}

/* Hashes addresses, protocol and ports. False for a packet that no stage forwards, whatever its destination. */
static __always_inline bool flow_of_ip(const void *data, const void *data_end, struct flow_ip *f)
{
	const void *ip = data + ETH_HLEN;
	__be16 type;

	if (ip > data_end)
		return false;
	type = LOAD16(data + 12);
	if (type == bpf_htons(ETH_P_8021Q)) {
		if (ip + VLAN_HLEN > data_end || !(LOAD16(ip) & bpf_htons(0xfff)))
			return false;
		type = LOAD16(ip + 2);
		ip += VLAN_HLEN;
		f->tagged = true;
	}
	switch (type) {
	case bpf_htons(ETH_P_IP):
		return flow_ipv4(ip, data_end, f);
	case bpf_htons(ETH_P_IPV6):
		return flow_ipv6(ip, data_end, f);
	default:
		return false;
	}
}

#endif
