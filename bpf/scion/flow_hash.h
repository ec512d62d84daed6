/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_SCION_FLOW_HASH_H
#define CULVERT_SCION_FLOW_HASH_H

#include "core/flow.h"

#include "path.h"

/* A bit for each UDP port, host order. It is set if a link of the SCION router uses the port. */
const volatile __u64 scion_udp_ports[1024];

/*
 * The bytes of the SCION header that are hashed: the part in front of the hosts, and the two hosts, which have 32 bytes
 * at most.
 */
#define FLOW_HOSTS (SCION_CMN_LEN + 16)
#define FLOW_LEN (FLOW_HOSTS + 32)

/*
 * Hashes the fields by which the reference selects a processor (computeProcID): flow ID and address header. The outer
 * addresses are those of two routers and do not distinguish flows. A header with a path is never shorter than FLOW_LEN,
 * so all packets of a flow are hashed in the same way.
 */
static __always_inline __u64 flow_hash(const void *scn)
{
	__u8 types = LOAD8(scn + 9);
	__u32 len = ((types >> 4 & 3) + (types & 3) + 2) * 4;
	__u64 h;

	h = flow_word(0, (LOAD32(scn) & bpf_htonl(0xfffff)) | (__u64)types << 32);
	h += flow_word(1, LOAD64(scn + SCION_CMN_LEN));
	h += flow_word(2, LOAD64(scn + SCION_CMN_LEN + 8));
	h += flow_word(3, LOAD64(scn + FLOW_HOSTS));
	if (len > 8)
		h += flow_word(4, len > 12 ? LOAD64(scn + FLOW_HOSTS + 8)
					   : LOAD32(scn + FLOW_HOSTS + 8));
	if (len > 16)
		h += flow_word(5, len > 20 ? LOAD64(scn + FLOW_HOSTS + 16)
					   : LOAD32(scn + FLOW_HOSTS + 16));
	if (len > 24)
		h += flow_word(6, len > 28 ? LOAD64(scn + FLOW_HOSTS + 24)
					   : LOAD32(scn + FLOW_HOSTS + 24));
	return flow_sum(h);
}

static __always_inline bool scion_port_has_link(__be16 dport)
{
	__u32 port = bpf_ntohs(dport);

	return scion_udp_ports[port >> 6] >> (port & 63) & 1;
}

/* The UDP header of a datagram that is long enough for a SCION packet to be hashed, NULL for any other. */
static __always_inline const void *flow_udp(const void *data, const void *data_end)
{
	const void *udp;

	if (data + OUTER_IPV4 + FLOW_LEN > data_end)
		return NULL;
	switch (LOAD16(data + 12)) {
	case bpf_htons(ETH_P_IP):
		if (LOAD8(data + 14) != 0x45 || LOAD16(data + 20) & bpf_htons(0x3fff) ||
		    LOAD8(data + 23) != IPPROTO_UDP)
			return NULL;
		udp = data + OUTER_IPV4 - sizeof(struct udphdr);
		break;
	case bpf_htons(ETH_P_IPV6):
		if (LOAD8(data + 20) != IPPROTO_UDP)
			return NULL;
		udp = data + OUTER_IPV6 - sizeof(struct udphdr);
		break;
	default:
		return NULL;
	}
	return udp + sizeof(struct udphdr) + FLOW_LEN > data_end ? NULL : udp;
}

/* Hashes the flow of a packet to a UDP port of a link. The lower half of the hash is the better one. */
static __always_inline enum flow_kind scion_flow_hash(const void *data, const void *data_end,
						      __u64 *hash)
{
	const void *udp;

	if (!scion_on)
		return FLOW_OTHER;
	udp = flow_udp(data, data_end);
	if (!udp || !scion_port_has_link(LOAD16(udp + 2)))
		return FLOW_OTHER;
	/* Packets with other paths, among them those of BFD, are for the slow path and must not wait in a queue. */
	if (LOAD8(udp + sizeof(struct udphdr) + 8) != PATH_SCION)
		return FLOW_STAYS;
	*hash = flow_hash(udp + sizeof(struct udphdr));
	return FLOW_HASHED;
}

#endif
