/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_PORT_H
#define CULVERT_CORE_PORT_H

/* Interfaces that one instance can carry; the counters are sized by it once and for all. */
#define MAX_PORTS 64

/* How a SCION datagram came in. */
struct scion_ingress {
	__u32 link;
	__u32 counters; /* of the link, in scion_traffic */
	__u16 ifid; /* 0 for siblings */
	__u8 scope;
	__u8 type; /* enum link_type of ifid */
};

/* A device that IP packets come in by: an interface, or a VLAN on one. */
struct route_dev {
	__u32 index; /* 0: not known */
	__u16 mac[3] __attribute__((aligned(4)));
	__u8 flags; /* ROUTE_DEV_ */
	__u8 pad;
};

#define ROUTE_DEV_FORWARD4 1
#define ROUTE_DEV_FORWARD6 2
#define ROUTE_DEV_STRICT 4 /* rp_filter */
#define ROUTE_DEV_LOOSE 8
#define ROUTE_DEV_REDIRECTS 16

/*
 * An interface with the program on it. Most carry a single SCION link: what that link's datagrams
 * look like stands here, so that they need no lookup.
 */
struct port {
	__u8 pair[36]
		__attribute__((aligned(8))); /* addresses and ports as they stand in the packet */
	__u32 seq; /* odd while user space writes in and pair */
	__u32 slot; /* 1 + index of its counters; 0: not ours */
	__u16 mac[3] __attribute__((aligned(4)));
	__u8 family; /* of pair: 4, 6, or 0 for none */
	__u8 xmit; /* frames may be redirected to it */
	struct scion_ingress in;
	struct route_dev route; /* for frames without a tag */
};

/* By ifindex. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct port);
} ports SEC(".maps");

#endif
