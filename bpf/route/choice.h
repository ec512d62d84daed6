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

/*
 * What the kernel chooses by, as bpf_fib_lookup gets it: two sums of hash_word with secrets of their own, the second with the counters
 * of the first two as well. Then the bucket and the tag that come of them. The upper 16 bits of the tag are from the flow alone. Two
 * flows of a bucket have the same tag with a probability of about 2^-64, one flow at different counters of about 2^-48.
 */
struct route_flow {
	__u64 bucket;
	__u64 tag;
};

const volatile __u32 route_secret[20];

/* Adds word i to a flow. */
static __always_inline void route_flow_add(struct route_flow *f, __u32 i, __u64 word)
{
	f->bucket += hash_word(route_secret[4 * i], route_secret[4 * i + 1], word);
	f->tag += hash_word(route_secret[4 * i + 2], route_secret[4 * i + 3], word);
}

#define ROUTE_FLOW_V4 (1U << 8)
#define ROUTE_FLOW_V6 (1U << 9)
#define ROUTE_FLOW_PORTS (1U << 10) /* fib_multipath_hash_policy 1 */

/* Begins a flow, without its addresses. label is the first word of IPv6, ports has both, with the source port in the lower half. */
static __always_inline void route_flow_begin(struct route_flow *f, bool v6, bool policy, __u8 proto,
					     __be32 label, __u32 ports)
{
	__u32 kind = v6 ? ROUTE_FLOW_V6 : ROUTE_FLOW_V4;

	f->bucket = f->tag = 0;
	if (policy) {
		kind |= ROUTE_FLOW_PORTS | proto;
	} else {
		ports = v6 ? label & bpf_htonl(0x000fffff) : 0;
		kind |= v6 ? proto : 0;
	}
	route_flow_add(f, 0, (__u64)kind << 32 | ports);
}

/* The lower 48 bits of a tag, and of what follows it in an element: all but used. */
#define ROUTE_CHOICE_MASK 0x0000ffffffffffffULL

/* Ends a flow. The counters are those of the slot and of what the kernel chooses from. */
static __always_inline void route_flow_end(struct route_flow *f, __u32 slot, __u32 seq)
{
	f->bucket = hash_mix(f->bucket);
	f->tag = hash_mix(f->tag + ((__u64)slot << 32 | seq));
	f->tag = (f->tag & ROUTE_CHOICE_MASK) | (f->bucket & ~ROUTE_CHOICE_MASK);
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

/* The fields behind check are read and written as one word, in the order of little-endian processors, the only ones. */
struct route_choice {
	__u64 check; /* the tag of the flow ^ what follows, without used: a mixture of two writes is nobody's */
	__u32 way_seq;
	__u16 way; /* number of the neighbor's next hop */
	__u16 used; /* the lower half of that of the next hop, when the choice was last used */
};

/* One cache line, because mappable maps begin at a page: with many flows, each line costs more than all instructions here. */
struct route_choice_bucket {
	struct route_choice c[4];
};

const volatile __u32 route_choice_mask; /* the number of buckets, a power of 2, less 1 */

/* Key: a part of the flow's bucket. Writer: the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_choice_bucket);
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

static __always_inline __u32 route_slot4(__be32 dst)
{
	__u32 word = bpf_ntohl(dst) >> 16, key = word >> 8;

	return lpm_entry(bpf_map_lookup_elem(&route_slots4, &key), word);
}

/* dst is the first four bytes of the address. */
static __always_inline __u32 route_slot6(__be32 dst)
{
	__u32 word = bpf_ntohl(dst), key = word >> 8 & 0xff;

	return lpm_entry(bpf_map_lookup_elem(&route_slots6, &key), word);
}

/* Adds the addresses of IPv6. The destination is in two halves. */
static __always_inline void route_flow_add6(struct route_flow *f, const void *ip, __u64 high,
					    __u64 low)
{
	route_flow_add(f, 1, LOAD64(ip + 8));
	route_flow_add(f, 2, LOAD64(ip + 16));
	route_flow_add(f, 3, high);
	route_flow_add(f, 4, low);
}

/*
 * The flow of a packet that may have got another destination, which only one with ports can (can_rewrite). seq is the counter of what
 * the kernel chooses from. Returns the slot's counter, an odd number if there is no flow.
 */
static __always_inline __u32 route_flow_of(const struct packet *pkt, bool policy, __u32 seq,
					   struct route_flow *f)
{
	const void *ip = pkt->data + pkt->l3;
	const struct rewrite *to = rewritten(pkt);
	__u32 ports = 0, slot;

	if (policy) {
		ports = route_ports(ip, pkt->data_end, pkt->ip_len, pkt->proto, pkt->fragment,
				    pkt->ip != 4);
		if (to)
			ports = (ports & 0xffff) | (__u32)to->port << 16;
	}
	barrier_var(ip);
	if (ip + 20 > pkt->data_end)
		return 1;
	if (pkt->ip == 4) {
		__be32 dst = daddr4(pkt, ip);

		slot = route_slot4(dst);
		route_flow_begin(f, false, policy, pkt->proto, 0, ports);
		route_flow_add(f, 1, (__u64)dst << 32 | LOAD32(ip + 12));
		route_flow_end(f, slot, seq);
		return slot;
	}
	if (ip + 40 > pkt->data_end)
		return 1;
	slot = route_slot6(daddr6_half(pkt, ip, 0));
	route_flow_begin(f, true, policy, pkt->proto, LOAD32(ip), ports);
	route_flow_add6(f, ip, daddr6_half(pkt, ip, 0), daddr6_half(pkt, ip, 8));
	route_flow_end(f, slot, seq);
	return slot;
}

static __always_inline struct route_choice_bucket *route_bucket(const struct route_flow *f)
{
	__u32 key = f->bucket & route_choice_mask;

	return bpf_map_lookup_elem(&route_choices, &key);
}

/* Whether the choice is that of the flow. Without a branch, so that the verifier does not follow one for each. */
static __always_inline bool route_is(const struct route_choice *c, const struct route_flow *f,
				     __u64 *rest)
{
	__u64 check = *(volatile const __u64 *)&c->check;

	*rest = *(volatile const __u64 *)&c->way_seq;
	return check == (f->tag ^ (*rest & ROUTE_CHOICE_MASK));
}

/* Returns the number of the neighbor's next hop that the kernel has chosen before for a flow. 0: the kernel has to be asked. */
static __always_inline __u32 route_choice(const struct route_flow *f)
{
	struct route_choice_bucket *b = route_bucket(f);
	const struct route_hop *hop;
	struct route_choice *c;
	__u64 rest;
	__u32 way;

	if (!b)
		return 0;
	c = &b->c[0];
	if (route_is(c, f, &rest))
		goto found;
	c = &b->c[1];
	if (route_is(c, f, &rest))
		goto found;
	c = &b->c[2];
	if (route_is(c, f, &rest))
		goto found;
	c = &b->c[3];
	if (!route_is(c, f, &rest))
		return 0;
found:
	way = rest >> 32 & 0xffff;
	hop = bpf_map_lookup_elem(&route_hops, &way);
	if (!hop || *(volatile const __u32 *)&hop->seq != (__u32)rest ||
	    hop->action != ROUTE_FORWARD)
		return 0;
	if (rest >> 48 != (__u16)hop->used)
		*(volatile __u16 *)&c->used = hop->used;
	return way;
}

/*
 * What the program on a CPU has found out about the flow of the packet at hand. The slot's counter is odd if the kernel's answer must
 * not be remembered. The stack has no room for it.
 */
struct route_notes {
	struct route_flow flow;
	__u32 slot;
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

/*
 * Finds a place for a flow: that which it has had, at whatever counters, or else a free one, or the one that was not used for longest,
 * neither in the tick now nor in the one before. Where all are in use, flows that take the place from each other would all ask the
 * kernel. Another CPU may be one tick ahead.
 */
static __always_inline struct route_choice *route_room(const struct route_flow *f, __u32 now)
{
	struct route_choice_bucket *b = route_bucket(f);
	struct route_choice *best = NULL;
	__u32 i, oldest = 2, age;
	__u64 rest;

	if (!b)
		return NULL;
	for (i = 0; i < 4; i++) {
		if (!((*(volatile const __u64 *)&b->c[i].check ^ f->tag) >> 48))
			return &b->c[i];
		rest = *(volatile const __u64 *)&b->c[i].way_seq;
		age = rest & ROUTE_CHOICE_MASK ? (__u16)(now + 1 - (rest >> 48)) : 0x10000;
		if (age > oldest) {
			oldest = age;
			best = &b->c[i];
		}
	}
	return best;
}

/*
 * Remembers that the kernel has chosen a neighbor for the flow in the notes. way is the number of the neighbor's next hop. It is no
 * static function, so that the verifier checks it once, and not again for each path to a call.
 */
__noinline int route_remember(__u32 way)
{
	const struct route_notes *n = route_mirror ? route_note() : NULL;
	const struct route_hop *hop;
	struct route_choice *c;
	__u64 rest;

	if (!n || n->slot & 1 || !way || way > 0xffff)
		return 0;
	hop = bpf_map_lookup_elem(&route_hops, &way);
	c = route_room(&n->flow, n->now);
	if (!c || !hop)
		return 0;
	rest = (__u64)way << 32 | seq_begin(&hop->seq);
	if (hop->action != ROUTE_FORWARD)
		return 0;
	*(volatile __u64 *)&c->way_seq = rest | (__u64)n->now << 48;
	*(volatile __u64 *)&c->check = n->flow.tag ^ rest;
	return 0;
}

#endif
