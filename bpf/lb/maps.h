/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_MAPS_H
#define CULVERT_LB_MAPS_H

#include "core/bloom.h"
#include "core/packet.h"

/* What is fixed at load time. */
const volatile bool balance_on;
const volatile __u32 balance_ring_size; /* prime */
const volatile __u32 balance_buckets; /* of balance_flows */
const volatile __u32 balance_seed[6]; /* of rings: the same on all machines that share VIPs */
const volatile __u32 balance_secret[6]; /* of the flow table: this data plane's own */
/* How long a flow stays without a packet, by its state, in ticks. */
const volatile __u16 balance_idle[4];

#define BALANCE_MAX_VIPS 1024

/* What a packet is addressed to. */
struct balance_vip_key {
	struct ip_addr addr;
	__be16 port; /* 0: all of them */
	__u8 proto; /* IPPROTO_TCP, IPPROTO_UDP */
	__u8 any; /* 1, with port 0: what is known of all VIPs of the address and protocol */
};

#define BALANCE_VIP_SOURCE 1 /* a client's flows go to one backend */
#define BALANCE_VIP_MOVE 2 /* flows of a failed backend go to another one */
#define BALANCE_VIP_EMPTY 4 /* no backend: the ring is not to be read */
#define BALANCE_VIP_SEVERAL 8 /* of an entry for any port: there is more than one VIP */
#define BALANCE_VIP_SOURCE_PORT 16 /* flows from a client's port go to one backend */

struct balance_vip {
	__u32 number; /* of its ring and its counters */
	__u8 flags; /* BALANCE_VIP_ */
	__u8 id_len; /* of server IDs in QUIC connection IDs, bytes; 0: they are not looked at */
	__u8 id_config; /* config rotation of such connection IDs, 0 to 6 */
	__u8 pad;
};

/* With an entry for any port beside those of the VIPs. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * BALANCE_MAX_VIPS);
	__type(key, struct balance_vip_key);
	__type(value, struct balance_vip);
} balance_vips SEC(".maps");

/* The addresses in balance_vips, by balance_addr_hash. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bloom);
} balance_addrs SEC(".maps");

/*
 * Who has a flow: the number of a member, and its generation, which tells it from others that have had
 * the number before.
 */
#define BALANCE_NUMBER_BITS 20
#define BALANCE_NUMBER ((1 << BALANCE_NUMBER_BITS) - 1)

/* Positions of a ring, a line of them. */
#define BALANCE_POSITIONS 16

struct balance_positions {
	__u32 owner[BALANCE_POSITIONS];
};

struct balance_ring {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct balance_positions));
};

/* Rings of owners, by number of the VIP. Writer: datapath, which exchanges whole rings. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, BALANCE_MAX_VIPS);
	__type(key, __u32);
	__array(values, struct balance_ring);
} balance_rings SEC(".maps");

/* How packets get to a backend. Shared with datapath.BalanceEncap. */
enum balance_encap {
	BALANCE_L2, /* as they are */
	BALANCE_IPIP,
	BALANCE_GUE,
};

#define BALANCE_MEMBER_USED 1
#define BALANCE_MEMBER_DOWN 2 /* its checks fail */
#define BALANCE_MEMBER_PLAIN 4 /* balance_send_plain knows how to get there */

/* A member: a backend of one VIP. */
struct balance_member {
	__u32 owner; /* what flows and rings call it */
	__be32 src_mask; /* bits of the last word of src that the flow's hash fills */
	struct ip_addr addr;
	struct ip_addr src; /* of the outer header */
	__u32 vip; /* number */
	__u32 port; /* index of the interface that frames leave by, 0: no way there is known */
	__u16 mtu; /* of the outer packet, bytes */
	__u16 vlan; /* PACKET_TAGGED + VLAN ID to put on, or 0 */
	__u8 dmac[6] __attribute__((aligned(4)));
	__u8 flags; /* BALANCE_MEMBER_ */
	__u8 encap;
	__u8 smac[6] __attribute__((aligned(4)));
	__be16 gue_port;
	__u8 linear_only; /* the interface takes no frames of several buffers */
	__u8 v6; /* family of addr and src */
	__u8 pad[2];
} __attribute__((aligned(8)));

/*
 * User space writes while programs read: they read the version that it does not write, which the lowest bit of
 * seq names, and again if seq has changed meanwhile (a latch).
 */
struct balance_slot {
	__u32 seq;
	__u32 pad;
	struct balance_member version[2];
};

/* By number. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct balance_slot);
} balance_members SEC(".maps");

/* Packets as they came in, by number of the member. Writer: the programs. */
struct balance_sums {
	__u64 packets;
	__u64 bytes; /* of IP packets */
	__u64 flows; /* taken into the table */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct balance_sums);
} balance_traffic SEC(".maps");

/* What happens to a VIP, beside the packets of its members. */
enum balance_event {
	BALANCE_EVENT_EMPTY, /* packets without a backend */
	BALANCE_EVENT_UNTRACKED, /* flows that the table did not take */
	BALANCE_EVENT_MOVED, /* flows that got another backend, because theirs has gone */
	BALANCE_EVENT_FRAGMENT, /* fragments, all of them */
	BALANCE_EVENT_LOST, /* fragments without a first one */
	BALANCE_EVENT_ICMP, /* errors handed to a backend */
	BALANCE_EVENT_ECHO, /* echo requests answered */
	BALANCE_EVENT_TOO_BIG, /* packets that did not fit */
	BALANCE_EVENT_QUIC, /* packets by their connection ID */
	BALANCE_EVENT_COLLISION, /* first fragments that another one was in the way of */
	BALANCE_EVENTS = 16,
};

/* By number of the VIP * BALANCE_EVENTS + event. Writer: the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} balance_events SEC(".maps");

static __always_inline void balance_event(__u32 vip, __u32 event)
{
	__u32 key = vip * BALANCE_EVENTS + event;
	__u64 *n = bpf_map_lookup_elem(&balance_events, &key);

	if (n)
		++*n;
}

/* What all fragments of a packet have in common. */
struct balance_datagram {
	__u64 src[2]; /* as in struct balance_flow */
	struct ip_addr dst;
	__be32 id;
	__u8 proto; /* of IPv4 */
	__u8 pad[3];
};

/* Where the first fragment has gone. */
struct balance_first {
	__u64 hash; /* of the flow */
	__u32 owner; /* 0: to no VIP */
	__u32 vip;
	__u32 time; /* of the first fragment, BALANCE_FIRST_SHIFT */
	__u32 pad;
};

/* A unit of such times is 2^30 ns, 1.07 s; receivers wait so many of them for the rest (RFC 8200, 4.5). */
#define BALANCE_FIRST_SHIFT 30
#define BALANCE_FIRST_WAIT 56

/*
 * For so many units, 1.07 s at least, a first fragment is in the way of another one with the same number, which may be
 * forged. Not for longer: it may be forged itself, and of IPv4 the numbers are few.
 */
#define BALANCE_FIRST_HOLD 2

/* Writer: the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct balance_datagram);
	__type(value, struct balance_first);
} balance_fragments SEC(".maps");

/* Bytes of a server ID at most. */
#define BALANCE_ID_MAX 8

/* A server of a VIP, as QUIC's connection IDs name it. */
struct balance_server_key {
	__u32 vip; /* number */
	__u8 len;
	__u8 pad[3];
	__u8 id[BALANCE_ID_MAX]; /* zeros behind it */
};

/* Owners. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct balance_server_key);
	__type(value, __u32);
} balance_servers SEC(".maps");

/* What user space keeps for the next process, and the programs do not read. Writer: datapath. */
struct balance_chunk {
	__u8 bytes[65536];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct balance_chunk);
} balance_state SEC(".maps");

/* What the checks of a member have found, by its number. Writer: the process that checks. */
struct balance_finding {
	__u64 since; /* of the present state, ns since the epoch */
	__u64 checks;
	__u64 failures;
	__u32 owner;
	__u8 state;
	__u8 pad[3];
	char text[96]; /* of the last failure */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct balance_finding);
} balance_health SEC(".maps");

#endif
