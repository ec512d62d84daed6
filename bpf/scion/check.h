/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_SCION_CHECK_H
#define CULVERT_SCION_CHECK_H

#include "core/clock.h"

#include "path.h"

/*
 * The checks of the reference router, one function each, named as in router/dataplane.go. They return REASON_NONE if
 * the packet may go on.
 */

static __always_inline struct scion_iface *scion_iface(__u32 id)
{
	return bpf_map_lookup_elem(&scion_ifaces, &id);
}

static __always_inline int scion_check_expiry(struct scion *s, __u64 recent)
{
	__u64 start = bpf_ntohl(LOAD32(s->info + 4));
	__u64 units = 1 + LOAD8(s->hop + 1);

	/* a unit is 24 h / 256 */
	if (wall_past(start * 1000000000ULL + units * 337500000000ULL, recent))
		return PUNT_SCION_EXPIRED;
	return REASON_NONE;
}

static __always_inline int scion_check_ingress(struct scion *s, const struct scion_ingress *in)
{
	__u16 id =
		scion_info_flags(s) & INFO_CONS_DIR ? scion_cons_ingress(s) : scion_cons_egress(s);

	if (in->ifid && in->ifid != id)
		return PUNT_SCION_INGRESS;
	return REASON_NONE;
}

/*
 * The reference's buffer has 9000 bytes, of which 512 are for headers that it writes. It refuses packets that are
 * longer than the rest.
 */
#define SCION_MAX_LEN 8488

static __always_inline int scion_check_length(struct scion *s)
{
	if (s->len > SCION_MAX_LEN || bpf_ntohs(LOAD16(s->hdr + 6)) != s->len - s->hdr_len)
		return PUNT_SCION_LENGTH;
	return REASON_NONE;
}

/*
 * A packet from inside may claim to have entered the AS at another router. Then it has to come from the sibling that
 * owns the interface that it claims to have entered by.
 */
static __always_inline int scion_check_transit_src(struct scion *s, const struct scion_ingress *in)
{
	__u16 cons_ingress = scion_cons_ingress(s);
	__u16 cons_egress = scion_cons_egress(s);
	__u8 flags = scion_info_flags(s);
	struct scion_iface *iface;
	__u32 id;

	if (s->at->flags & PATH_POS_FIRST || in->ifid)
		return REASON_NONE;
	if (!s->peering && s->at->flags & PATH_POS_SWITCHED) {
		/* The segment was switched on the way in: look at the hop before the switch. */
		__u32 info_off = s->at->info_off - SCION_INFO_LEN;
		__u32 hop_off = s->at->hop_off - SCION_HOP_LEN;
		void *meta = s->hdr + s->meta_off;
		void *info, *hop;

		/* The masks change nothing. They give the verifier bounds, which it does not know any more. */
		barrier_var(info_off);
		barrier_var(hop_off);
		info = meta + (info_off & 0x1f);
		hop = meta + (hop_off & 0x3ff);
		if (info + SCION_INFO_LEN > s->data_end || hop + SCION_HOP_LEN > s->data_end)
			return PUNT_SCION_MALFORMED;
		flags = LOAD8(info);
		cons_ingress = bpf_ntohs(LOAD16(hop + 2));
		cons_egress = bpf_ntohs(LOAD16(hop + 4));
	}
	id = flags & INFO_CONS_DIR ? cons_ingress : cons_egress;
	/* Interface 0 stands for the AS itself, which is link 0. */
	if (!id)
		return in->link ? DROP_SCION_TRANSIT_SRC : REASON_NONE;
	iface = scion_iface(id);
	if (!iface || iface->link != in->link + 1)
		return DROP_SCION_TRANSIT_SRC;
	return REASON_NONE;
}

static __always_inline int scion_check_ias(struct scion *s, const struct scion_ingress *in)
{
	bool src_local = scion_src_ia(s) == scion_local_ia;
	bool dst_local = scion_dst_ia(s) == scion_local_ia;

	if (!in->ifid) {
		if (s->at->flags & PATH_POS_FIRST && !src_local)
			return PUNT_SCION_SRC_IA;
		if (dst_local)
			return PUNT_SCION_DST_IA;
	} else {
		if (src_local)
			return PUNT_SCION_SRC_IA;
		if (!!(s->at->flags & PATH_POS_LAST) != dst_local)
			return PUNT_SCION_DST_IA;
	}
	return REASON_NONE;
}

static __always_inline int scion_check_src_host(struct scion *s)
{
	void *src;

	if (scion_src_ia(s) != scion_local_ia || scion_src_type(s) == ADDR_IP4)
		return REASON_NONE;
	/* A service address is no host address. Such a packet terminates the reference's process. */
	if (scion_src_type(s) == ADDR_SVC)
		return DROP_SCION_SRC_SERVICE;
	if (scion_src_type(s) != ADDR_IP6)
		return PUNT_SCION_SRC_HOST;
	src = s->hdr + (s->meta_off - 16);
	if (src + 16 > s->data_end)
		return PUNT_SCION_MALFORMED;
	if (!LOAD64(src) && LOAD32(src + 8) == IP4_MAPPED)
		return PUNT_SCION_SRC_HOST;
	return REASON_NONE;
}

static __always_inline int scion_check_mac(struct scion *s, __u64 recent)
{
	struct hop_mac h = hop_mac_input(s->info, s->hop, s->segid);

	return hop_verify(&h, recent) ? REASON_NONE : PUNT_SCION_MAC;
}

/*
 * Checks whether a packet may go from an interface of type in to one of type out, inside a segment, or if xover is set,
 * where segments switch.
 */
static __always_inline int scion_check_link_types(__u32 in, __u32 out, bool xover)
{
	if (!xover) {
		if ((in == LINK_CORE && out == LINK_CORE) ||
		    (in == LINK_CHILD && (out == LINK_PARENT || out == LINK_PEER)) ||
		    ((in == LINK_PARENT || in == LINK_PEER) && out == LINK_CHILD))
			return REASON_NONE;
		return PUNT_SCION_LINK_TYPE;
	}
	if ((in == LINK_CORE && out == LINK_CHILD) ||
	    (in == LINK_CHILD && (out == LINK_CORE || out == LINK_CHILD)))
		return REASON_NONE;
	return PUNT_SCION_SEGMENT_CHANGE;
}

#endif
