/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_SCION_MAPS_H
#define CULVERT_SCION_MAPS_H

#include "core/counters.h"
#include "core/next_hop.h"

/* Shared with scionplane.LinkScope. */
enum link_scope {
	SCOPE_INTERNAL,
	SCOPE_SIBLING,
	SCOPE_EXTERNAL,
};

/* Shared with scionplane.LinkType. */
enum link_type {
	LINK_UNSET,
	LINK_CORE,
	LINK_PARENT,
	LINK_CHILD,
	LINK_PEER,
};

/* Traffic types and size classes of the reference router's metrics (router/metrics.go). */
enum traffic {
	TRAFFIC_OTHER,
	TRAFFIC_IN,
	TRAFFIC_OUT,
	TRAFFIC_IN_TRANSIT,
	TRAFFIC_OUT_TRANSIT,
	TRAFFIC_BR_TRANSIT,
	TRAFFIC_COUNT,
};

#define SIZE_CLASSES 9

/* What is fixed at load time. */
const volatile bool scion_on;
const volatile bool scion_skip_mac; /* for the bench alone */
const volatile bool scion_use_fib; /* no process keeps the next hops up to date: ask the kernel */
const volatile __be64 scion_local_ia;
const volatile bool scion_internal_v6;
const volatile __u32 scion_internal_counters; /* as in struct scion_link */
const volatile __be16 scion_internal_port;
const volatile __be32 scion_internal_addr[4]; /* as struct ip_addr */
/* Dispatched ports, host order, both included; first > last means none. */
const volatile __u16 scion_port_first;
const volatile __u16 scion_port_last;

/* Addresses and ports of a datagram as it comes in. Each link has one pair. */
struct scion_pair4 {
	__be32 saddr;
	__be32 daddr;
	__be16 sport;
	__be16 dport;
};

struct scion_pair6 {
	struct ip_addr saddr;
	struct ip_addr daddr;
	__be16 sport;
	__be16 dport;
};

/* External and sibling links, by the addresses and ports of their datagrams. Writer: scionplane. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct scion_pair4);
	__type(value, struct scion_ingress);
} scion_pairs4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct scion_pair6);
	__type(value, struct scion_ingress);
} scion_pairs6 SEC(".maps");

struct scion_iface {
	__u32 link; /* 1 + link index; 0: no such interface */
	__u32 type; /* enum link_type */
};

/* Interfaces of the AS. Key: interface ID. Writer: scionplane. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scion_iface);
} scion_ifaces SEC(".maps");

/*
 * A link. Its outer header is ready to be copied; lengths and checksums in it are 0. The header of the internal link
 * has no destination.
 */
struct scion_link {
	__u8 ip[48]; /* IP and UDP */
	struct next_hop hop;
	__u32 ip_sum; /* of the IPv4 header, as it stands in ip */
	__u32 l4_sum; /* of pseudo header and UDP header, lengths left out */
	__u32 counters; /* of the link, in scion_traffic */
	__u8 scope;
	__u8 v6;
	__u8 up;
	__u8 pad;
	__be32 bfd_own; /* discriminator of the session; 0: no session, or not known */
	__be32 bfd_far; /* the far end's, while the session is up; 0: any */
	__u32 bfd_refused; /* BFD packets that the slow path's own check has dropped; for status */
	__u32 seq; /* of hop, see core/seqcount.h */
};

/* Key: link index. Writer: scionplane. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scion_link);
} scion_links SEC(".maps");

/*
 * The interfaces by which datagrams of a link must not come in: the bit of an interface is its slot - 1. Key: link
 * index. Writer: scionplane.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} scion_refused SEC(".maps");

/*
 * An end host. If its next hop has no port, only the kernel reaches the host: it is this host, or behind a device that
 * the data plane is not on.
 */
struct scion_host {
	struct next_hop hop;
	__u32 used; /* CLOCK_REALTIME >> HOST_USED_SHIFT when packets were last sent to it */
	__u32 pad;
};

/* The unit is about a second. It is short enough to tell hosts in use from others, and so long that stores are rare. */
#define HOST_USED_SHIFT 30

/* End hosts of the AS. Writer: scionplane. Writer of used: the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct ip_addr);
	__type(value, struct scion_host);
} scion_hosts SEC(".maps");

/* Whether the AS has services whose addresses are known. */
const volatile bool scion_services_on;

/* Addresses of hosts with services of the AS, above all its control service. Writer: scionplane. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct ip_addr);
	__type(value, __u32);
} scion_services SEC(".maps");

/* End hosts that scion_hosts lacks, for user space to resolve. Writer: the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} scion_wanted SEC(".maps");

/* What the reference router counts for each link. Key: the link's counters. Writer: the programs. */
struct scion_counters {
	struct counter in[SIZE_CLASSES];
	struct counter out[TRAFFIC_COUNT][SIZE_CLASSES];
	__u64 dropped[SIZE_CLASSES]; /* invalid packets */
	__u64 limited[SIZE_CLASSES]; /* punts over their rate */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scion_counters);
} scion_traffic SEC(".maps");

#endif
