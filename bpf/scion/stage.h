/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_SCION_STAGE_H
#define CULVERT_SCION_STAGE_H

#include "check.h"
#include "host.h"
#include "limit.h"
#include "punted.h"
#include "send.h"
#include "counters.h"
#include "straight.h"

/*
 * Whether the source is one that Linux never accepts (ip_route_input_slow, ip6_rcv_core). The internal link takes
 * packets from any other source. A packet with such a source is left to the kernel, which drops it.
 */
static __always_inline bool scion_martian(const struct packet *pkt)
{
	const void *src = pkt->data + (pkt->v6 ? IPV6_SADDR : IPV4_SADDR);
	__u8 first;

	if (src + (pkt->v6 ? 16 : 4) > pkt->data_end)
		return true;
	first = LOAD8(src);
	if (!pkt->v6)
		return first == 0 || first == 127 || first >= 224 ||
		       LOAD32(src) == scion_internal_addr[3];
	if (first == 0xff)
		return true;
	/* the loopback address and mapped IPv4 addresses */
	return !LOAD64(src) && (LOAD32(src + 8) == IP4_MAPPED ||
				(!LOAD32(src + 8) && LOAD32(src + 12) == bpf_htonl(1)));
}

/* Whether the datagram belongs to the one link that is kept in struct port. If so, the link is copied to in. */
static __always_inline bool scion_port_link(const struct packet *pkt, struct scion_ingress *in)
{
	const struct scion_port *port = &pkt->port->scion;
	const void *src = pkt->data + (pkt->v6 ? IPV6_SADDR : IPV4_SADDR);
	__u32 seq = seq_begin(&port->seq);

	if (!pkt->v6) {
		if (port->family != 4 || src + 12 > pkt->data_end ||
		    LOAD64(src) != LOAD64(port->pair) || LOAD32(src + 8) != LOAD32(port->pair + 8))
			return false;
	} else {
		if (port->family != 6 || src + 36 > pkt->data_end ||
		    LOAD64(src) != LOAD64(port->pair) ||
		    LOAD64(src + 8) != LOAD64(port->pair + 8) ||
		    LOAD64(src + 16) != LOAD64(port->pair + 16) ||
		    LOAD64(src + 24) != LOAD64(port->pair + 24) ||
		    LOAD32(src + 32) != LOAD32(port->pair + 32))
			return false;
	}
	*in = port->in;
	return seq_same(&port->seq, seq);
}

/* Looks up the link of a datagram. The function is not inlined, so that the keys do not take up the caller's stack. */
static __noinline struct scion_ingress *scion_find_pair(struct xdp_md *ctx, bool v6)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;

	if (v6) {
		struct scion_pair6 pair __attribute__((aligned(8))) = {};

		if (data + IPV6_SADDR + 36 > data_end)
			return NULL;
		copy(&pair, data + IPV6_SADDR, 36);
		return bpf_map_lookup_elem(&scion_pairs6, &pair);
	} else {
		struct scion_pair4 pair __attribute__((aligned(8))) = {};

		if (data + IPV4_SADDR + 12 > data_end)
			return NULL;
		copy(&pair, data + IPV4_SADDR, 12);
		return bpf_map_lookup_elem(&scion_pairs4, &pair);
	}
}

/* Returns DROP_SCION_INTERFACE if datagrams of the link must not come in by this interface, else REASON_NONE. */
static __always_inline int scion_check_interface(const struct packet *pkt, __u32 link)
{
	__u64 *refused = bpf_map_lookup_elem(&scion_refused, &link);

	/* slots are from 1 to MAX_PORTS */
	if (refused && *refused >> ((pkt->port->slot - 1) & (MAX_PORTS - 1)) & 1)
		return DROP_SCION_INTERFACE;
	return REASON_NONE;
}

/*
 * Finds the link that a datagram has come in by, as the reference's connected sockets do. Returns PASS_OTHER if it
 * belongs to no link, and DROP_SCION_INTERFACE if it belongs to one but has come in by the wrong interface. The link
 * that is kept in struct port needs no check, because the next hop of its far end is behind that interface.
 */
static __always_inline int scion_find_ingress(struct xdp_md *ctx, struct packet *pkt,
					      struct scion_ingress *in)
{
	struct scion_ingress *found;
	void *data = pkt->data;
	void *dst;

	if (scion_port_link(pkt, in))
		return REASON_NONE;
	found = scion_find_pair(ctx, pkt->v6);
	if (found) {
		*in = *found;
		return scion_check_interface(pkt, in->link);
	}
	__builtin_memset(in, 0, sizeof(*in));
	/* Anybody inside may send to the internal address. */
	in->counters = scion_internal_counters;
	if (pkt->dport != scion_internal_port || pkt->v6 != scion_internal_v6 || scion_martian(pkt))
		return PASS_OTHER;
	if (!pkt->v6) {
		if (LOAD32(data + IPV4_DADDR) != scion_internal_addr[3])
			return PASS_OTHER;
		return scion_check_interface(pkt, 0);
	}
	dst = data + IPV6_DADDR;
	/* Parsing has checked the bounds, but the verifier does not know them any more. */
	barrier_var(dst);
	if (dst + 16 > pkt->data_end || LOAD32(dst) != scion_internal_addr[0] ||
	    LOAD32(dst + 4) != scion_internal_addr[1] ||
	    LOAD32(dst + 8) != scion_internal_addr[2] || LOAD32(dst + 12) != scion_internal_addr[3])
		return PASS_OTHER;
	return scion_check_interface(pkt, 0);
}

/* Returns the first word of the current info field with a new SegID, as the reference serializes it. */
static __always_inline __be32 scion_with_segid(struct scion *s, __u16 segid)
{
	__be32 flags = LOAD32(s->info) & bpf_htonl((INFO_CONS_DIR | INFO_PEER) << 24);

	s->segid = segid;
	/* The reserved bits are cleared. */
	return flags | ((__u32)segid << 16);
}

static __always_inline int scion_inc_path(struct scion *s, struct scion_packet *p)
{
	if (s->at->flags & PATH_POS_LAST)
		return DROP_SCION_PATH;
	p->meta_to = s->at->next;
	return REASON_NONE;
}

/* Sends the packet out of the AS, or to the sibling that owns the egress interface. */
static __always_inline int scion_outbound(struct scion *s, struct scion_packet *p)
{
	const struct scion_ingress *in = &p->in;
	struct scion_link *link;
	bool xover = false;
	struct scion_iface *iface;
	__u8 alert;
	__u32 id;
	int reason;

	if (!s->peering && s->at->flags & PATH_POS_SWITCH) {
		const struct path_pos *at = path_pos(s->at->next);

		xover = true;
		if (!at)
			return DROP_SCION_PATH;
		p->meta_to = at->meta;
		reason = scion_seek(s, at);
		if (reason)
			return reason;
		reason = scion_check_expiry(s, p->recent);
		if (reason)
			return reason;
		reason = scion_check_mac(s, p->recent);
		if (reason)
			return reason;
	}
	id = scion_info_flags(s) & INFO_CONS_DIR ? scion_cons_egress(s) : scion_cons_ingress(s);
	iface = scion_iface(id);
	if (!iface || !iface->link)
		return PUNT_SCION_EGRESS;
	id = iface->link - 1;
	p->link = id;
	link = bpf_map_lookup_elem(&scion_links, &id); /* 6.1 takes keys from the stack only */
	if (!link)
		return PUNT_SCION_EGRESS;
	if (in->ifid) {
		reason = scion_check_link_types(in->type, iface->type, xover);
		if (reason)
			return reason;
	} else {
		if (link->scope == SCOPE_SIBLING)
			return PUNT_SCION_EGRESS;
		/* Within a segment the sibling has checked the two interfaces. At a switch of segments it has not. */
		if (xover)
			return PUNT_SCION_SEGMENT_CHANGE;
	}
	if (link->scope != SCOPE_EXTERNAL)
		return link->up ? FWD_SCION_IN_TRANSIT : PUNT_SCION_LINK_DOWN;
	alert = scion_info_flags(s) & INFO_CONS_DIR ? HOP_EGRESS_ALERT : HOP_INGRESS_ALERT;
	if (scion_hop_flags(s) & alert)
		return PUNT_SCION_EGRESS_ALERT;
	if (!link->up)
		return PUNT_SCION_LINK_DOWN;
	if (scion_info_flags(s) & INFO_CONS_DIR && !s->peering) {
		p->out_info.off = s->at->info_off;
		p->out_info.from = LOAD32(s->info);
		p->out_info.to = scion_with_segid(s, s->segid ^ LOAD16(s->hop + 6));
	}
	reason = scion_inc_path(s, p);
	if (reason)
		return reason;
	if (scion_src_ia(s) == scion_local_ia)
		return FWD_SCION_OUT;
	return in->ifid ? FWD_SCION_BR_TRANSIT : FWD_SCION_OUT_TRANSIT;
}

/*
 * Decides on a packet as the reference does, in the same order (router/dataplane.go, process). Nothing is written to
 * the packet.
 */
__noinline int scion_decide(struct xdp_md *ctx, struct scion_packet *p)
{
	struct scion s = {};
	__u8 alert;
	int reason;

	if (!p)
		return PUNT_SCION_MALFORMED;
	reason = scion_decode(ctx, p, &s);
	if (reason)
		return reason;
	reason = scion_path(&s);
	if (reason)
		return reason;
	reason = scion_check_expiry(&s, p->recent);
	if (reason)
		return reason;
	reason = scion_check_ingress(&s, &p->in);
	if (reason)
		return reason;
	reason = scion_check_length(&s);
	if (reason)
		return reason;
	reason = scion_check_transit_src(&s, &p->in);
	if (reason)
		return reason;
	reason = scion_check_ias(&s, &p->in);
	if (reason)
		return reason;
	reason = scion_check_src_host(&s);
	if (reason)
		return reason;
	p->meta_off = s.meta_off;
	p->meta_from = s.at->meta;
	p->meta_to = p->meta_from;
	if (p->in.ifid && !(scion_info_flags(&s) & INFO_CONS_DIR) && !s.peering) {
		p->in_info.off = s.at->info_off;
		p->in_info.from = LOAD32(s.info);
		p->in_info.to = scion_with_segid(&s, s.segid ^ LOAD16(s.hop + 6));
	}
	reason = scion_check_mac(&s, p->recent);
	if (reason)
		return reason;
	alert = scion_info_flags(&s) & INFO_CONS_DIR ? HOP_INGRESS_ALERT : HOP_EGRESS_ALERT;
	if (p->in.ifid && scion_hop_flags(&s) & alert)
		return PUNT_SCION_INGRESS_ALERT;
	if (scion_dst_ia(&s) == scion_local_ia)
		return scion_inbound(&s, p);
	return scion_outbound(&s, p);
}

/* Decides on a datagram of a link, and sends it. */
static __always_inline int scion_process(struct xdp_md *ctx, struct packet *pkt,
					 struct scion_scratch *m)
{
	struct scion_packet *p = &m->p;
	int reason, egress;

	p->recent = wall_recent(&m->clock);
	p->to_host = false;
	p->in_info = (struct scion_change){};
	p->out_info = (struct scion_change){};
	p->check = pkt->check;
	p->v6 = pkt->v6;
	reason = scion_decide(ctx, p);
	if (reason >= REASON_FWD) {
		egress = scion_send(ctx, p);
		if (egress > 0)
			pkt->egress = egress;
		else
			reason = -egress;
	}
	if (reason >= REASON_PUNT && reason < REASON_LIMITED)
		pkt->domain = scion_domain(ctx, p, limit_domain(pkt->port));
	return reason;
}

/* The SCION border router. Returns REASON_NONE if the packet came in by none of its links. */
static __always_inline int scion_stage(struct xdp_md *ctx, struct packet *pkt)
{
	struct scion_scratch *m;
	struct scion_packet *p;
	__u32 key = 0;
	int reason;

	if (!scion_on || !pkt->udp)
		return REASON_NONE;
	m = bpf_map_lookup_elem(&scion_scratch, &key);
	if (!m)
		return REASON_NONE;
	if (!straight_off) {
		__u32 len = pkt->l4_len - sizeof(struct udphdr);
		const struct scion_port *port = &pkt->port->scion;
		int egress;

		egress = pkt->v6 ? scion_straight6(ctx, port, &m->clock, len)
				 : scion_straight4(ctx, port, &m->clock, len);
		pkt->egress = egress;
		if (egress > 0)
			return FWD_SCION_BR_TRANSIT;
		if (egress == STRAIGHT_SWITCH) {
			egress = pkt->v6 ? scion_switch6(ctx, port, &m->clock, len)
					 : scion_switch4(ctx, port, &m->clock, len);
			pkt->egress = egress;
			if (egress > 0)
				return FWD_SCION_BR_TRANSIT;
		}
	}
	p = &m->p;
	reason = scion_find_ingress(ctx, pkt, &p->in);
	if (reason == PASS_OTHER)
		return REASON_NONE;
	p->len = pkt->l4_len - sizeof(struct udphdr);
	if (!reason)
		reason = scion_process(ctx, pkt, m);
	if (reason >= REASON_DROP)
		scion_count(p, reason);
	/*
	 * The reason is always above REASON_NONE. The test shows this to the verifier, because no other stage may run:
	 * the pointers of a changed packet are invalid.
	 */
	return reason > REASON_NONE ? reason : PUNT_SCION_MALFORMED;
}

#endif
