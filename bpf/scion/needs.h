/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_SCION_NEEDS_H
#define CULVERT_SCION_NEEDS_H

/* The link that a datagram has come in by. */
struct scion_ingress {
	__u32 link;
	__u32 counters; /* of the link, in scion_traffic */
	__u16 ifid; /* ID of the interface; 0 for siblings and for the internal link */
	__u8 scope;
	__u8 type; /* enum link_type of ifid */
};

/*
 * Most interfaces have a single SCION link. The addresses and ports of its datagrams are kept in struct port, so that
 * these datagrams need no lookup.
 */
struct scion_port {
	/* Addresses and ports as they stand in the packet. */
	__u8 pair[36] __attribute__((aligned(8)));
	__u32 seq; /* of the rest, see core/seqcount.h */
	struct scion_ingress in;
	__u8 family; /* of pair: 4, 6, or 0 for none */
	__u8 pad[3];
};

#define SCION_ON scion_on
#define SCION_NEEDS PARSE_UDP
#define SCION_PORT struct scion_port scion;

#endif
