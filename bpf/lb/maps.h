/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_MAPS_H
#define CULVERT_LB_MAPS_H

#include "core/bloom.h"
#include "core/next_hop.h"
#include "core/seqcount.h"

/* What is fixed at load time. */
const volatile bool lb_on;
const volatile __u32 lb_ring_size; /* prime */
const volatile __u32 lb_buckets; /* of lb_flows */
const volatile __u32 lb_seed[6]; /* of rings: the same on all machines that share VIPs */
const volatile __u32 lb_secret[6]; /* of the flow table: this data plane's own */
/* How long a flow stays without a packet, by its state, in ticks. */
const volatile __u16 lb_idle[4];

#define LB_MAX_VIPS 1024

/* What a packet is addressed to. */
struct lb_vip_key {
	struct ip_addr addr;
	__be16 port; /* 0: all of them */
	__u8 proto; /* IPPROTO_TCP, IPPROTO_UDP */
	__u8 any; /* 1, with port 0: what is known of all VIPs of the address and protocol */
};

#define LB_VIP_SOURCE 1 /* a client's flows go to one backend */
#define LB_VIP_MOVE 2 /* flows of a failed backend go to another one */
#define LB_VIP_EMPTY 4 /* no backend: the ring is not to be read */
#define LB_VIP_SEVERAL 8 /* of an entry for any port: there is more than one VIP */
#define LB_VIP_SOURCE_PORT 16 /* flows from a client's port go to one backend */

struct lb_vip {
	__u32 number; /* of its ring and its counters */
	__u8 flags; /* LB_VIP_ */
	__u8 id_len; /* of server IDs in QUIC connection IDs, bytes; 0: they are not looked at */
	__u8 id_config; /* config rotation of such connection IDs, 0 to 6 */
	__u8 pad;
};

/* With an entry for any port beside those of the VIPs. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * LB_MAX_VIPS);
	__type(key, struct lb_vip_key);
	__type(value, struct lb_vip);
} lb_vips SEC(".maps");

/* The addresses in lb_vips, by lb_vip_addr_hash. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bloom);
} lb_addrs SEC(".maps");

/*
 * Who has a flow: the number of a backend, and its generation, which tells it from others that have had
 * the number before.
 */
#define LB_NUMBER_BITS 20
#define LB_NUMBER ((1 << LB_NUMBER_BITS) - 1)

/* Positions of a ring, a line of them. */
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

/* Rings of backends, by number of the VIP. Writer: datapath, which exchanges whole rings. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, LB_MAX_VIPS);
	__type(key, __u32);
	__array(values, struct lb_ring);
} lb_rings SEC(".maps");

/* How packets get to a backend. Shared with datapath.BalanceEncap. */
enum lb_encap {
	LB_L2, /* as they are */
	LB_IPIP,
	LB_GUE,
};

#define LB_BACKEND_USED 1
#define LB_BACKEND_DOWN 2 /* its checks fail */
#define LB_BACKEND_PLAIN 4 /* lb_send_plain knows how to get there */

/* A backend: a backend of one VIP. */
struct lb_backend {
	__u32 id; /* what flows and rings call it */
	__be32 src_mask; /* bits of the last word of src that the flow's hash fills */
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

/* A backend while user space may be changing it: the lowest bit of seq names the version to read, see core/seqcount.h. */
struct lb_backend_latch {
	__u32 seq;
	__u32 pad;
	struct lb_backend version[2];
};

/* By number. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lb_backend_latch);
} lb_backends SEC(".maps");

/* Packets as they came in, by number of the backend. Writer: the programs. */
struct lb_backend_counters {
	__u64 packets;
	__u64 bytes; /* of IP packets */
	__u64 flows; /* taken into the table */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lb_backend_counters);
} lb_traffic SEC(".maps");

/* What happens to a VIP, beside the packets of its backends. */
enum lb_event {
	LB_EVENT_EMPTY, /* packets without a backend */
	LB_EVENT_UNTRACKED, /* flows that the table did not take */
	LB_EVENT_MOVED, /* flows that got another backend, because theirs has gone */
	LB_EVENT_FRAGMENT, /* fragments, all of them */
	LB_EVENT_LOST, /* fragments without a first one */
	LB_EVENT_ICMP, /* errors handed to a backend */
	LB_EVENT_ECHO, /* echo requests answered */
	LB_EVENT_TOO_BIG, /* packets that did not fit */
	LB_EVENT_QUIC, /* packets by their connection ID */
	LB_EVENT_COLLISION, /* first fragments that another one was in the way of */
	LB_EVENTS = 16,
};

/* By number of the VIP * LB_EVENTS + event. Writer: the programs. */
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

/* What all fragments of a packet have in common. */
struct lb_datagram {
	__u64 src[2]; /* as in struct lb_flow */
	struct ip_addr dst;
	__be32 id;
	__u8 proto; /* of IPv4 */
	__u8 pad[3];
};

/* Where the first fragment has gone. */
struct lb_fragment_first {
	__u64 hash; /* of the flow */
	__u32 backend; /* 0: to no VIP */
	__u32 vip;
	__u32 time; /* of the first fragment, LB_FRAGMENT_TIME_SHIFT */
	__u32 pad;
};

/* A unit of such times is 2^30 ns, 1.07 s; receivers wait so many of them for the rest (RFC 8200, 4.5). */
#define LB_FRAGMENT_TIME_SHIFT 30
#define LB_FRAGMENT_WAIT 56

/*
 * For so many units, 1.07 s at least, a first fragment is in the way of another one with the same number, which may be
 * forged. Not for longer: it may be forged itself, and of IPv4 the numbers are few.
 */
#define LB_FRAGMENT_HOLD 2

/* Writer: the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct lb_datagram);
	__type(value, struct lb_fragment_first);
} lb_fragments SEC(".maps");

/* Bytes of a server ID at most. */
#define LB_ID_MAX 8

/* A server of a VIP, as QUIC's connection IDs name it. */
struct lb_server_key {
	__u32 vip; /* number */
	__u8 len;
	__u8 pad[3];
	__u8 id[LB_ID_MAX]; /* zeros behind it */
};

/* Backends. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct lb_server_key);
	__type(value, __u32);
} lb_servers SEC(".maps");

/* What user space keeps for the next process, and the programs do not read. Writer: datapath. */
struct lb_chunk {
	__u8 bytes[65536];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lb_chunk);
} lb_state SEC(".maps");

/* What the checks of a backend have found, by its number. Writer: the process that checks. */
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
