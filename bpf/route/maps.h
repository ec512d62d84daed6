/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_ROUTE_MAPS_H
#define CULVERT_ROUTE_MAPS_H

#include "core/bloom.h"
#include "core/next_hop.h"
#include "core/seqcount.h"

#ifndef AF_INET
#define AF_INET 2
#define AF_INET6 10
#endif

/* What is fixed at load time. */
const volatile bool route_on;
const volatile bool route_mirror; /* there is a mirror; else the kernel is asked for each packet */
const volatile bool route_trusting; /* for the bench alone: no heartbeat is needed */

/* What becomes of packets to a next hop. Shared with routeplane.Action. */
enum route_action {
	ROUTE_ASK, /* ask the kernel, with bpf_fib_lookup */
	ROUTE_FORWARD,
	ROUTE_CONNECTED, /* the destination itself is the neighbor */
	ROUTE_LOCAL,
	ROUTE_NONE,
	ROUTE_UNREACHABLE,
	ROUTE_PROHIBIT,
	ROUTE_BLACKHOLE,
	ROUTE_RESOLVE, /* the kernel has to resolve the neighbor first */
	ROUTE_ELSEWHERE, /* the device takes no redirected frames */
};

/* An element of route_hops: what a number in the mirror stands for. */
struct route_hop {
	__u32 seq; /* see core/seqcount.h */
	__u32 used; /* when it was last used: coarse clock, ns >> ROUTE_USED_SHIFT. Writer: the programs. */
	__u32 dev; /* index of the device of the route; the VLAN device if there is one */
	__u8 action; /* enum route_action */
	__u8 remember; /* with ROUTE_ASK: the kernel's answer depends on the flow alone, see choice.h */
	__u8 pad[2];
	struct next_hop hop;
};

#define ROUTE_USED_SHIFT 30

/* Key: number of the next hop. Writer: routeplane, except for used. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_hop);
} route_hops SEC(".maps");

/* Numbers with a fixed meaning. Shared with routeplane. */
enum route_fixed {
	ROUTE_HOP_ASK,
	ROUTE_HOP_NONE,
	ROUTE_HOP_LOCAL,
	ROUTE_HOP_UNREACHABLE,
	ROUTE_HOP_PROHIBIT,
	ROUTE_HOP_BLACKHOLE,
	ROUTE_HOP_ELSEWHERE,
};

/* A neighbor on a connected network. */
struct route_neighbor {
	struct ip_addr addr;
	__u32 dev;
};

/* The number of a neighbor's element in route_hops. Writer: routeplane. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct route_neighbor);
	__type(value, __u32);
} route_neighbors SEC(".maps");

/* VLAN devices, by the interface below and the tag, PACKET_TAGGED + VLAN ID. Writer: routeplane. */
struct route_vlan {
	__u32 port;
	__u32 tag;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct route_vlan);
	__type(value, struct route_dev);
} route_vlans SEC(".maps");

/* How frames leave by a device that the kernel has named. */
struct route_way {
	__u32 port;
	__u16 vlan; /* as in struct next_hop */
	__u8 xmit; /* frames may be redirected to the port */
	__u8 linear_only;
};

/* Key: index of the device. Writer: routeplane. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct route_way);
} route_ways SEC(".maps");

/* What is the same for all packets. */
struct route_state {
	__u64 until4; /* when the mirror ceases to be valid: CLOCK_MONOTONIC, ns */
	__u64 until6;
	__u8 kernel4; /* leave this family to the kernel */
	__u8 kernel6;
	__u8 hash4; /* fib_multipath_hash_policy */
	__u8 hash6;
	__u8 full4; /* the kernel checks sources without rp_filter too */
	__u8 rules4; /* policy rules use protocols or ports */
	__u8 rules6;
	__u8 pad;
	__u16 mtu4; /* the lowest MTU that a route sets, 0 for none */
	__u16 mtu6;
	__u32 pad2;
	struct bloom own; /* the addresses in route_own4 */
};

/* Writer: routeplane. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_state);
} route_states SEC(".maps");

/* IPv4 addresses of this host. Writer: routeplane. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __be32);
	__type(value, __u32);
} route_own4 SEC(".maps");

#endif
