/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_MAPS_H
#define CULVERT_LB_MAPS_H

#include "core/bloom.h"
#include "core/next_hop.h"
#include "core/seqcount.h"

/* What is fixed at load time. */
const volatile bool lb_on;
const volatile __u32 lb_ring_size; /* a prime */
const volatile __u32 lb_buckets; /* their number in lb_flows */
const volatile __u32 lb_seed[6]; /* for rings, the same on all machines that share VIPs */
const volatile __u32 lb_secret[6]; /* for the flow table, of this data plane alone */
/* How long a flow is kept without packets, by its state, in ticks. */
const volatile __u16 lb_idle[4];

#define LB_MAX_VIPS 1024

/* The key of a VIP. */
struct lb_vip_key {
	struct ip_addr addr;
	__be16 port; /* 0: any */
	__u8 proto; /* IPPROTO_TCP, IPPROTO_UDP */
	__u8 any; /* 1, with port 0: the entry for all VIPs of the address and protocol */
};

#define LB_VIP_SOURCE 1 /* a client's flows go to one backend */
#define LB_VIP_MOVE 2 /* flows of a failed backend go to another one */
#define LB_VIP_EMPTY 4 /* no backend: the ring must not be read */
#define LB_VIP_SEVERAL 8 /* in an entry for any port: there are several VIPs */
#define LB_VIP_SOURCE_PORT 16 /* flows from a client's port go to one backend */

struct lb_vip {
	__u32 number; /* of its ring and of its counters */
	__u8 flags; /* LB_VIP_ */
	__u8 id_len; /* length of server IDs in QUIC connection IDs, bytes; 0: connection IDs are not read */
	__u8 id_config; /* config rotation of such connection IDs, 0 to 6 */
	__u8 pad;
};

/* VIPs. Each address and protocol with VIPs also has an entry for any port. Writer: lbplane. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * LB_MAX_VIPS);
	__type(key, struct lb_vip_key);
	__type(value, struct lb_vip);
} lb_vips SEC(".maps");

/* A Bloom filter of the addresses in lb_vips, by bloom_addr(). Writer: lbplane. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bloom);
} lb_addrs SEC(".maps");

/*
 * The ID of a backend: its number, and above it a generation, which distinguishes it from earlier backends with that
 * number.
 */
#define LB_NUMBER_BITS 20
#define LB_NUMBER ((1 << LB_NUMBER_BITS) - 1)

/* A cache line of positions in a ring. */
#define LB_POSITIONS 16

struct lb_positions {
	__u32 backend[LB_POSITIONS];
};

struct lb_ring {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct lb_positions));
};

/* Rings. A position has the ID of a backend. Key: number of the VIP. Writer: lbplane, which replaces whole rings. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, LB_MAX_VIPS);
	__type(key, __u32);
	__array(values, struct lb_ring);
} lb_rings SEC(".maps");

/* How packets get to a backend. Shared with lbplane.Encap. */
enum lb_encap {
	LB_L2, /* without outer headers */
	LB_IPIP,
	LB_GUE,
};

#define LB_BACKEND_USED 1
#define LB_BACKEND_DOWN 2 /* its health checks fail */
#define LB_BACKEND_PLAIN 4 /* lb_send_plain can send to it */

/* A backend of one VIP. A server behind two VIPs is two backends. */
struct lb_backend {
	__u32 id; /* as in flows and rings */
	__be32 src_mask; /* the bits of the last word of src that are taken from the flow's hash */
	struct ip_addr addr;
	struct ip_addr src; /* of the outer header */
	struct next_hop hop; /* its MTU is that of the outer packet */
	__u16 vip; /* number */
	__be16 gue_port;
	__u8 flags; /* LB_BACKEND_ */
	__u8 encap; /* enum lb_encap */
	__u8 v6; /* family of addr and src */
	__u8 pad;
} __attribute__((aligned(8)));

/*
 * A latch (core/seqcount.h), because user space may be changing the backend. The lowest bit of seq names the version to
 * read.
 */
struct lb_backend_latch {
	__u32 seq;
	__u32 pad;
	struct lb_backend version[2];
};

/* Key: number of the backend. Writer: lbplane. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lb_backend_latch);
} lb_backends SEC(".maps");

/* Packets without the outer headers. Key: number of the backend. Writer: the programs. */
struct lb_backend_counters {
	__u64 packets;
	__u64 bytes; /* of IP packets */
	__u64 flows; /* inserted into the flow table */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lb_backend_counters);
} lb_traffic SEC(".maps");

/* Events that are counted for a VIP, in addition to the packets of its backends. */
enum lb_event {
	LB_EVENT_EMPTY, /* packets without a backend */
	LB_EVENT_UNTRACKED, /* flows that were not inserted into the table */
	LB_EVENT_MOVED, /* flows whose backend has gone and that got another one */
	LB_EVENT_FRAGMENT, /* fragments of any kind */
	LB_EVENT_LOST, /* fragments whose first one is not known */
	LB_EVENT_ICMP, /* ICMP errors sent to a backend */
	LB_EVENT_ECHO, /* echo requests answered */
	LB_EVENT_TOO_BIG, /* packets that did not fit */
	LB_EVENT_QUIC, /* packets whose connection ID named the backend */
	LB_EVENT_COLLISION, /* first fragments with the identification of a datagram of another flow */
	LB_EVENTS = 16,
};

/* Key: number of the VIP * LB_EVENTS + event. Writer: the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lb_events SEC(".maps");

static __always_inline void lb_event(__u32 vip, __u32 event)
{
	__u32 key = vip * LB_EVENTS + event;
	__u64 *n = bpf_map_lookup_elem(&lb_events, &key);

	if (n)
		++*n;
}

/* The fields that all fragments of a datagram share. */
struct lb_datagram {
	__u64 src[2]; /* as in struct lb_flow */
	struct ip_addr dst;
	__be32 id;
	__u8 proto; /* of IPv4 */
	__u8 pad[3];
};

/* Where the first fragment of a datagram went. */
struct lb_fragment_first {
	__u64 hash; /* of the flow */
	__u32 backend; /* 0: to no VIP */
	__u32 vip;
	__u32 time; /* of the first fragment, in units of 1 << LB_FRAGMENT_TIME_SHIFT ns */
	__u32 pad;
};

/* A unit is 1.07 s. Receivers wait 60 s for the rest (RFC 8200, 4.5). */
#define LB_FRAGMENT_TIME_SHIFT 30
#define LB_FRAGMENT_WAIT 56

/*
 * Units for which a recorded first fragment is kept if another one comes with the same identification: the other one
 * may be forged. It is not kept longer, because it may be forged itself, and IPv4 has few identifications.
 */
#define LB_FRAGMENT_HOLD 2

/* Writer: the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct lb_datagram);
	__type(value, struct lb_fragment_first);
} lb_fragments SEC(".maps");

/* The longest server ID, bytes. */
#define LB_ID_MAX 8

/* A server ID in connection IDs of QUIC. */
struct lb_server_key {
	__u32 vip; /* number */
	__u8 len;
	__u8 pad[3];
	__u8 id[LB_ID_MAX]; /* padded with zeros */
};

/* The IDs of the backends that server IDs name. Writer: lbplane. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct lb_server_key);
	__type(value, __u32);
} lb_servers SEC(".maps");

/* State that user space keeps for the next process. Programs do not read it. Writer: lbplane. */
struct lb_chunk {
	__u8 bytes[65536];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lb_chunk);
} lb_state SEC(".maps");

/*
 * The result of the health checks of a backend. Key: number of the backend. Writer: the process that runs the checks.
 */
struct lb_finding {
	__u64 since; /* of the present state, ns since the epoch */
	__u64 checks;
	__u64 failures;
	__u32 backend;
	__u8 state;
	__u8 pad[3];
	char text[96]; /* of the last failure */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lb_finding);
} lb_health SEC(".maps");

#endif
