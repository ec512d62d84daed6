/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_ROUTE_CHOICE_H
#define CULVERT_ROUTE_CHOICE_H

#include "core/hash.h"
#include "core/rewrite.h"

#include "lpm.h"
#include "maps.h"

/*
 * The kernel's choices among several next hops, remembered for each flow. A choice is used again only while nothing has changed
 * that it depends on:
 *
 * - what the mirror has for the destination: a slot counts the changes of the mirror for all destinations that share it;
 * - what the kernel chooses from, and how: the control plane writes the next hop again (route_hop.seq) when something of that
 *   changes;
 * - the neighbor that the choice leads to (route_hop.seq of its own next hop).
 *
 * The first two are read before the kernel is asked, so that an answer from before a change is never kept as one from after it. The
 * third only says what the neighbor's next hop means.
 */

/* What the kernel chooses by, as bpf_fib_lookup gets it. */
struct route_flow {
	__u64 key; /* ports or flow label, 32 bits; protocol, 8; ROUTE_FLOW_ */
	__u64 addr[4]; /* IPv4: both in the first */
};

/* One of the first two is in each key, so that no key is 0. */
#define ROUTE_FLOW_V4 (1ULL << 40)
#define ROUTE_FLOW_V6 (1ULL << 41)
#define ROUTE_FLOW_PORTS (1ULL << 42) /* fib_multipath_hash_policy 1 */

/* The key of a flow. label is the first word of IPv6, ports has both, with the source port in the lower half. */
static __always_inline __u64 route_flow_key(bool v6, bool policy, __u8 proto, __be32 label,
					    __u32 ports)
{
	if (policy)
		return (v6 ? ROUTE_FLOW_V6 : ROUTE_FLOW_V4) | ROUTE_FLOW_PORTS |
		       (__u64)proto << 32 | ports;
	if (!v6)
		return ROUTE_FLOW_V4;
	return ROUTE_FLOW_V6 | (__u64)proto << 32 | (label & bpf_htonl(0x000fffff));
}

/*
 * The ports by which the kernel may select a path, as they stand in a packet with the IP header at ip and ip_len bytes; 0 for
 * none. The source port is in the lower half. See route_flow_ports.
 */
static __always_inline __u32 route_ports(const void *ip, const void *data_end, __u32 ip_len,
					 __u8 proto, bool fragment, bool v6)
{
	const __u32 l3_len = v6 ? 40 : 20;
	const void *l4 = ip + l3_len;

	if (ip_len < l3_len + 4 || fragment || (proto != IPPROTO_TCP && proto != IPPROTO_UDP))
		return 0;
	return l4 + 4 > data_end ? 0 : LOAD32(l4);
}

/* The flow of a packet that may have got another destination, which only one with ports can (can_rewrite). */
static __always_inline bool route_flow_of(const struct packet *pkt, bool policy,
					  struct route_flow *f)
{
	const void *ip = pkt->data + pkt->l3;
	const struct rewrite *to = rewritten(pkt);
	__u32 ports = 0;

	if (policy) {
		ports = route_ports(ip, pkt->data_end, pkt->ip_len, pkt->proto, pkt->fragment,
				    pkt->ip != 4);
		if (to)
			ports = (ports & 0xffff) | (__u32)to->port << 16;
	}
	barrier_var(ip);
	if (ip + 20 > pkt->data_end)
		return false;
	f->key = route_flow_key(pkt->ip != 4, policy, pkt->proto, LOAD32(ip), ports);
	if (pkt->ip == 4) {
		f->addr[0] = (__u64)daddr4(pkt, ip) << 32 | LOAD32(ip + 12);
		f->addr[1] = f->addr[2] = f->addr[3] = 0;
		return true;
	}
	if (ip + 40 > pkt->data_end)
		return false;
	copy(f->addr, ip + 8, 16);
	f->addr[2] = daddr6_half(pkt, ip, 0);
	f->addr[3] = daddr6_half(pkt, ip, 8);
	return true;
}

/*
 * What the program on a CPU has found out about the flow of the packet at hand, and under which counters the kernel's answer may be
 * remembered: the flow's slot, which is odd if it may not be, and what the kernel chooses from. The stack has no room for it.
 */
struct route_notes {
	struct route_flow flow;
	__u32 slot;
	__u32 seq;
	__u32 now; /* as route_hop.used */
};

/* Key: 0. Writer: the programs, which handle one packet after the other on a CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_notes);
} route_notes SEC(".maps");

static __always_inline struct route_notes *route_note(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&route_notes, &zero);
}

/* In how many places a flow can be. */
#define ROUTE_WAYS 4

struct route_choice {
	__u32 seq; /* see core/seqcount.h; programs write too, and exclude each other by its lowest bit */
	__u32 slot; /* the slot's counter */
	__u32 hop_seq; /* seq of what the kernel has chosen from */
	__u32 way; /* number of the neighbor's next hop */
	__u32 way_seq;
	__u32 used; /* that of the neighbor's next hop, when the choice was last used */
	struct route_flow flow; /* key 0: free */
};

const volatile __u32 route_choice_mask; /* the number of elements, a power of 2, less 1 */

/*
 * Key: a part of the flow's hash, or that with one of the lowest two bits changed, or both. An element is one cache line, because
 * mappable maps begin at a page. Writer: the programs.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_choice);
} route_choices SEC(".maps");

/*
 * Counters of changes of the mirror. Key and index are two bytes of the destination: the first two of IPv4, the third and the
 * fourth of IPv6. An odd one says that the kernel may still be about to change. Writer: routeplane.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lpm_block);
} route_slots4 SEC(".maps"), route_slots6 SEC(".maps");

/* In what route_recall returns: the answer must not be remembered, because the kernel may still be about to change. */
#define ROUTE_UNSETTLED (1ULL << 32)

/* The counter of a flow's slot. */
static __always_inline __u32 route_slot_of(const struct route_flow *f)
{
	bool v6 = f->key & ROUTE_FLOW_V6;
	__u32 word = bpf_ntohl(v6 ? f->addr[2] : f->addr[0] >> 32) >> (v6 ? 0 : 16);
	__u32 key = word >> 8 & 0xff;

	return lpm_entry(v6 ? bpf_map_lookup_elem(&route_slots6, &key)
			    : bpf_map_lookup_elem(&route_slots4, &key),
			 word);
}

/* The first place of a flow. */
static __always_inline __u32 route_place(const struct route_flow *f)
{
	const __u64 m = 0x9e3779b97f4a7c15ULL;
	__u64 h = ((f->addr[3] * m + f->addr[2]) * m + f->addr[1]) * m + f->addr[0];

	return hash_mix(h + f->key * m) & route_choice_mask;
}

/* Without branches, because the verifier follows each of them for each way. The rest of an IPv4 flow's addresses is 0. */
static __always_inline bool route_same_flow(const struct route_choice *c,
					    const struct route_flow *f)
{
	const volatile __u64 *addr = c->flow.addr;

	return !((*(const volatile __u64 *)&c->flow.key ^ f->key) | (addr[0] ^ f->addr[0]) |
		 (addr[1] ^ f->addr[1]) | (addr[2] ^ f->addr[2]) | (addr[3] ^ f->addr[3]));
}

/*
 * Returns the number of the neighbor's next hop that the kernel has chosen before for a flow. If the kernel has to be asked the
 * lower half is 0, and the upper half is the slot under which the answer may be remembered, an odd number for none. seq is the
 * counter of what the kernel chooses from.
 */
__noinline __u64 route_choice(const struct route_flow *f, __u32 seq)
{
	__u32 place, slot, i, at, key, way;
	const struct route_hop *hop;
	struct route_choice *c;

	if (!route_mirror || !f)
		return ROUTE_UNSETTLED;
	place = route_place(f);
#pragma clang loop unroll(disable)
	for (i = 0; i < ROUTE_WAYS; i++) {
		barrier(); /* the flow is read again, for lack of registers and stack */
		key = place ^ i;
		c = bpf_map_lookup_elem(&route_choices, &key);
		if (!c)
			break;
		at = seq_begin(&c->seq);
		if (route_same_flow(c, f))
			goto found;
	}
	goto none;
found:
	way = c->way;
	slot = c->slot;
	hop = bpf_map_lookup_elem(&route_hops, &way);
	if (!hop || c->hop_seq != seq || *(volatile const __u32 *)&hop->seq != c->way_seq ||
	    hop->action != ROUTE_FORWARD || !seq_same(&c->seq, at) || slot != route_slot_of(f))
		goto none;
	if (c->used != hop->used)
		*(volatile __u32 *)&c->used = hop->used;
	return way;
none:
	return (__u64)route_slot_of(f) << 32;
}

/*
 * Finds a place for a flow: that which it has, or else a free one, or the one that was not used for longest, before the time now.
 * Where all are in use, flows that take the place from each other would all ask the kernel. Begins to write it; returns NULL if there
 * is none, or another program writes it.
 */
static __always_inline struct route_choice *route_room(const struct route_flow *f, __u32 now)
{
	__u32 place = route_place(f), best = -1, oldest = now, i, key, used;
	struct route_choice *c;

#pragma clang loop unroll(disable)
	for (i = 0; i < ROUTE_WAYS; i++) {
		barrier();
		key = place ^ i;
		c = bpf_map_lookup_elem(&route_choices, &key);
		if (!c)
			return NULL;
		if (route_same_flow(c, f)) {
			best = key;
			break;
		}
		used = c->flow.key ? c->used : 0;
		if (used < oldest) {
			oldest = used;
			best = key;
		}
	}
	key = best;
	c = bpf_map_lookup_elem(&route_choices, &key);
	if (!c)
		return NULL;
	used = *(volatile __u32 *)&c->seq;
	if (used & 1 || __sync_val_compare_and_swap(&c->seq, used, used | 1) != used)
		return NULL;
	return c;
}

/*
 * Remembers that the kernel has chosen a neighbor for the flow in the notes. way is the number of the neighbor's next hop. Like
 * route_choice it is no static function, so that the verifier checks it once, and not again for each path to a call.
 */
__noinline int route_remember(__u32 way)
{
	const struct route_notes *n = route_mirror ? route_note() : NULL;
	const struct route_hop *hop;
	struct route_choice *c;
	const struct route_flow *f;

	if (!n || n->slot & 1 || !way)
		return 0;
	f = &n->flow;
	c = route_room(f, n->now);
	if (!c)
		return 0;
	fence();
	hop = bpf_map_lookup_elem(&route_hops, &way);
	if (hop && hop->action == ROUTE_FORWARD) {
		*(volatile __u32 *)&c->way = way;
		*(volatile __u32 *)&c->way_seq = seq_begin(&hop->seq);
		*(volatile __u32 *)&c->used = hop->used;
		*(volatile __u32 *)&c->slot = n->slot;
		*(volatile __u32 *)&c->hop_seq = n->seq;
		*(volatile __u64 *)&c->flow.key = f->key;
		*(volatile __u64 *)&c->flow.addr[0] = f->addr[0];
		*(volatile __u64 *)&c->flow.addr[1] = f->addr[1];
		*(volatile __u64 *)&c->flow.addr[2] = f->addr[2];
		*(volatile __u64 *)&c->flow.addr[3] = f->addr[3];
	}
	seq_write_end(&c->seq);
	return 0;
}

#endif
