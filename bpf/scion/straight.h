/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_SCION_STRAIGHT_H
#define CULVERT_SCION_STRAIGHT_H

#include "core/straight.h"

#include "check.h"
#include "counters.h"
#include "send.h"

/*
 * The straight way of most packets: from the external link of the ingress interface to another external link, both of one
 * family, without extension headers, alerts or peering. It repeats scion_decide and scion_send for these packets alone.
 * Whatever it does not expect it leaves to them, and has written nothing by then. Each function is there twice: for packets in
 * the middle of a segment, which are most, and for those that go on to the next segment. So the first pay nothing for the
 * second.
 */

/* Returned for a packet that the straight way of switches of segments is for. No interface has this index. */
#define STRAIGHT_SWITCH -1

/* What is unusual of a place on a path. */
#define STRAIGHT_POS                                                                   \
	(PATH_POS_OUTSIDE | PATH_POS_WRONG_INFO | PATH_POS_LONE_HOP | PATH_POS_FIRST | \
	 PATH_POS_LAST | PATH_POS_SWITCH)

/* Where a packet is on its path, and what changes. */
struct scion_straight {
	void *left; /* the info field of the segment that it leaves here */
	__be32 left_word; /* its first word as it leaves */
	void *meta;
	void *info;
	void *hop;
	__be32 next; /* the meta header for the next hop */
	__be32 word; /* the first word of the info field as it leaves */
	__u16 egress; /* interface IDs, host order */
	__u16 ingress;
};

/* Whether a datagram is one of the link that is kept in the interface. in has it then. */
static __always_inline bool straight_link(const struct scion_port *port, const void *pair,
					  const bool v6, struct scion_ingress *in)
{
	__u32 seq = seq_begin(&port->seq);

	if (port->family != (v6 ? 6 : 4))
		return false;
	if (LOAD64(pair) != LOAD64(port->pair))
		return false;
	if (!v6) {
		if (LOAD32(pair + 8) != LOAD32(port->pair + 8))
			return false;
	} else if (LOAD64(pair + 8) != LOAD64(port->pair + 8) ||
		   LOAD64(pair + 16) != LOAD64(port->pair + 16) ||
		   LOAD64(pair + 24) != LOAD64(port->pair + 24) ||
		   LOAD32(pair + 32) != LOAD32(port->pair + 32)) {
		return false;
	}
	in->counters = port->in.counters;
	in->ifid = port->in.ifid;
	in->type = port->in.type;
	return in->ifid && seq_same(&port->seq, seq);
}

/* Reads the current info and hop field. */
static __always_inline bool straight_fields(struct scion_straight *s, void *data_end)
{
	__u32 ids;
	__be16 mac;

	if (s->info + SCION_INFO_LEN > data_end || s->hop + SCION_HOP_LEN > data_end)
		return false;
	if (LOAD8(s->info) & ~INFO_CONS_DIR ||
	    LOAD8(s->hop) & (HOP_EGRESS_ALERT | HOP_INGRESS_ALERT))
		return false;
	mac = LOAD16(s->hop + 6);
	s->word = (LOAD32(s->info) & bpf_htonl(INFO_CONS_DIR << 24 | 0xffff)) ^ (__u32)mac << 16;
	ids = bpf_ntohl(LOAD32(s->hop + 2));
	if (!LOAD8(s->info))
		ids = ids << 16 | ids >> 16;
	s->ingress = ids >> 16;
	s->egress = ids;
	return true;
}

/* Reads header and path. Returns 1, or what scion_straight returns. */
static __always_inline int straight_read(void *hdr, void *data_end, __u32 len,
					 struct scion_straight *s, const bool switches)
{
	const struct path_pos *at;
	__u32 hdr_len, meta_off, pos;
	__u8 types, proto;

	if (hdr + SCION_HOST_OFF > data_end || len > SCION_MAX_LEN)
		return 0;
	proto = LOAD8(hdr + 4);
	if (proto != L4_UDP && proto != L4_TCP && proto != L4_SCMP)
		return 0;
	hdr_len = LOAD8(hdr + 5) * 4;
	/* For a header beyond the end the difference is more than 16 bits can say. */
	if (LOAD8(hdr + 8) != PATH_SCION || bpf_ntohs(LOAD16(hdr + 6)) != len - hdr_len)
		return 0;
	if (LOAD64(hdr + SCION_ADDR_OFF) == scion_local_ia ||
	    LOAD64(hdr + SCION_ADDR_OFF + 8) == scion_local_ia)
		return 0;
	types = LOAD8(hdr + 9);
	meta_off = SCION_HOST_OFF + 8 + 4 * ((types & 3) + (types >> 4 & 3));
	s->meta = hdr + meta_off;
	if (s->meta + SCION_META_LEN > data_end)
		return 0;
	at = path_pos(LOAD32(s->meta));
	if (!at)
		return 0;
	pos = at->flags & STRAIGHT_POS;
	if (switches ? pos != PATH_POS_SWITCH : pos)
		return !switches && pos == PATH_POS_SWITCH ? STRAIGHT_SWITCH : 0;
	if (meta_off + at->len > hdr_len)
		return 0;
	s->next = at->next;
	s->info = s->meta + (at->info_off & 0x1f);
	s->hop = s->meta + (at->hop_off & 0x3ff);
	return straight_fields(s, data_end);
}

static __always_inline bool straight_expired(const struct scion_straight *s, __u64 recent)
{
	__u64 start = bpf_ntohl(LOAD32(s->info + 4));
	__u64 units = 1 + LOAD8(s->hop + 1);

	return wall_past(start * 1000000000ULL + units * 337500000000ULL, recent);
}

/* The SegID that the MAC covers is that of the packet in the direction of construction, else the one that it leaves with. */
static __always_inline bool straight_mac(const struct scion_straight *s, __u64 recent)
{
	__u16 segid = LOAD8(s->info) ? LOAD16(s->info + 2) : s->word >> 16;
	struct hop_mac h = hop_mac_input(s->info, s->hop, segid);

	return hop_verify(&h, recent);
}

/*
 * Goes on to the next segment, if the hop field of this one is valid. The hop field behind the next is of that segment too,
 * because each has two at least. A SegID changes on the way in against the direction of construction, and on the way out in
 * that direction.
 */
static __always_inline bool straight_switch(struct scion_straight *s, void *data_end, __u64 recent)
{
	if (straight_expired(s, recent) || !straight_mac(s, recent))
		return false;
	s->left = s->info;
	s->left_word = LOAD8(s->info) ? LOAD32(s->info) : s->word;
	s->next += bpf_htonl(1 << 24);
	s->info += SCION_INFO_LEN;
	s->hop += SCION_HOP_LEN;
	if (!straight_fields(s, data_end))
		return false;
	if (!LOAD8(s->info))
		s->word = LOAD32(s->info);
	return true;
}

/* Whether a link is external, of the family, and up. The fourth of these bytes is 0. */
static __always_inline bool straight_usable(const struct scion_link *l, const bool v6)
{
	_Static_assert(offsetof(struct scion_link, v6) == offsetof(struct scion_link, scope) + 1 &&
			       offsetof(struct scion_link, pad) ==
				       offsetof(struct scion_link, scope) + 3,
		       "the bytes are read as one word");
	return LOAD32(&l->scope) == (SCOPE_EXTERNAL | v6 << 8 | 1 << 16);
}

static __always_inline void straight_count(__u32 in, __u32 out, __u32 len)
{
	__u32 class = size_class(len);
	struct scion_counters *c;

	if (class >= SIZE_CLASSES)
		return;
	c = bpf_map_lookup_elem(&scion_traffic, &in);
	if (!c)
		return;
	c->in[class].packets++;
	c->in[class].bytes += len;
	c = bpf_map_lookup_elem(&scion_traffic, &out);
	if (!c)
		return;
	c->out[TRAFFIC_BR_TRANSIT][class].packets++;
	c->out[TRAFFIC_BR_TRANSIT][class].bytes += len;
}

/*
 * Forwards a datagram of len bytes behind its UDP header, and returns the index of the interface that it leaves by. 0 or
 * STRAIGHT_SWITCH: it does not go this way, and is unchanged. Parsing has checked the headers up to UDP's.
 */
static __always_inline int scion_straight(struct xdp_md *ctx, const struct scion_port *port,
					  struct wall_clock *clock, __u32 len, const bool v6,
					  const bool switches)
{
	const __u32 outer = v6 ? OUTER_IPV6 : OUTER_IPV4;
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct scion_straight s;
	struct scion_ingress in;
	struct scion_iface *iface;
	struct scion_link *l;
	__u64 recent, dmac, smac, sum;
	__u32 id, seq, out, to;
	__be16 ip_len, udp_len;
	__u16 check;
	int way;

	if (data + outer > data_end ||
	    !straight_link(port, data + (v6 ? IPV6_SADDR : IPV4_SADDR), v6, &in))
		return 0;
	way = straight_read(data + outer, data_end, len, &s, switches);
	if (way <= 0)
		return way;
	if (s.ingress != in.ifid)
		return 0;
	if (switches && !straight_switch(&s, data_end, wall_recent(clock)))
		return 0;
	id = s.egress;
	iface = scion_iface(id);
	if (!iface || !iface->link || scion_check_link_types(in.type, iface->type, switches))
		return 0;
	id = iface->link - 1;
	l = bpf_map_lookup_elem(&scion_links, &id);
	if (!l || !straight_usable(l, v6))
		return 0;
	recent = wall_recent(clock);
	if (straight_expired(&s, recent) || !straight_mac(&s, recent))
		return 0;
	seq = seq_begin(&l->seq);
	to = l->hop.port;
	dmac = LOAD64(l->hop.dmac);
	smac = LOAD64(l->hop.smac);
	if (!to || len + outer - ETH_HLEN > l->hop.mtu ||
	    !next_hop_takes(ctx, &l->hop, data_end - data) || !seq_same(&l->seq, seq))
		return 0;
	check = LOAD16(data + outer - 2);
	if (check) {
		sum = (__u64)l->l4_sum + (__u16)~check;
		sum += scion_old_sum(data, data_end, v6);
		sum += (__u64)(__u32)~LOAD32(s.meta) + s.next;
		sum += (__u64)(__u32)~LOAD32(s.info) + s.word;
		if (switches)
			sum += (__u64)(__u32)~LOAD32(s.left) + s.left_word;
		check = ~csum_fold(sum);
		check = check ?: 0xffff;
	}
	if (switches)
		STORE32(s.left, s.left_word);
	STORE32(s.meta, s.next);
	STORE32(s.info, s.word);
	udp_len = bpf_htons(len + sizeof(struct udphdr));
	STORE64(data, dmac);
	STORE64(data + 6, smac);
	STORE16(data + 12, v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP));
	copy(data + ETH_HLEN, l->ip, v6 ? 48 : 28);
	if (v6) {
		STORE16(data + ETH_HLEN + 4, udp_len);
	} else {
		ip_len = bpf_htons(len + sizeof(struct udphdr) + sizeof(struct iphdr));
		STORE16(data + ETH_HLEN + 2, ip_len);
		STORE16(data + ETH_HLEN + 10, ~csum_fold((__u64)l->ip_sum + ip_len));
	}
	STORE16(data + outer - 4, udp_len);
	STORE16(data + outer - 2, check);
	out = l->counters;
	straight_count(in.counters, out, len);
	return to;
}

/* They are global functions, so that the verifier checks them once, and not again for each path to a call. */
#define SCION_STRAIGHT(name, v6, switches)                                           \
	__noinline int name(struct xdp_md *ctx, const struct scion_port *port,       \
			    struct wall_clock *clock, __u32 len)                     \
	{                                                                            \
		return scion_on && port && clock                                     \
			       ? scion_straight(ctx, port, clock, len, v6, switches) \
			       : 0;                                                  \
	}

SCION_STRAIGHT(scion_straight4, false, false)
SCION_STRAIGHT(scion_straight6, true, false)
SCION_STRAIGHT(scion_switch4, false, true)
SCION_STRAIGHT(scion_switch6, true, true)

#endif
