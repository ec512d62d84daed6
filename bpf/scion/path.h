/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_SCION_PATH_H
#define CULVERT_SCION_PATH_H

#include "bfd.h"
#include "mac.h"
#include "path_pos.h"

/* Header layout: SCION header specification; scionproto pkg/slayers. Lengths in bytes. */
/* Ethernet, IP and UDP. */
#define OUTER_IPV4 42
#define OUTER_IPV6 62

#define SCION_CMN_LEN 12
#define SCION_ADDR_OFF SCION_CMN_LEN
#define SCION_HOST_OFF (SCION_ADDR_OFF + 16)

enum scion_path_type {
	PATH_EMPTY,
	PATH_SCION,
	PATH_ONEHOP,
	PATH_EPIC,
};

/* Next headers that the reference accepts from a socket (udpip computeProcID). */
enum scion_protocol {
	L4_TCP = 6,
	L4_UDP = 17,
	SCION_HBH = 200,
	SCION_E2E = 201,
	L4_SCMP = 202,
	L4_BFD = 203,
	L4_EXPERIMENT1 = 253,
	L4_EXPERIMENT2 = 254,
};

/* Address types, with their lengths in the lower two bits. */
enum scion_addr_type {
	ADDR_IP4 = 0,
	ADDR_IP6 = 3,
	ADDR_SVC = 4,
};

#define INFO_CONS_DIR 0x1
#define INFO_PEER 0x2
#define HOP_EGRESS_ALERT 0x1
#define HOP_INGRESS_ALERT 0x2

/* A change of a word of an info field. Without a change from and to are equal and off is 0. */
struct scion_change {
	__u32 off; /* from the path meta header */
	__be32 from;
	__be32 to;
};

/* A datagram of a link, as global functions pass it to each other. The verifier checks each of these once. */
struct scion_packet {
	__u64 recent; /* CLOCK_REALTIME, ns, at most a tick old */
	struct ip_addr dst; /* to_host only */
	struct scion_ingress in;
	__u32 len; /* SCION header and payload, bytes */
	__u32 link; /* index of the link that it leaves by */
	__u32 out_counters; /* of that link, in scion_traffic */
	__u16 check; /* of the outer UDP header */
	__u8 v6; /* of the outer IP header */
	__u8 to_host;
	__be16 dport; /* to_host only */
	__u16 meta_off; /* of the path meta header, from the SCION header */
	/* The words of the SCION header that change. */
	__be32 meta_from;
	__be32 meta_to;
	struct scion_change in_info; /* on the way in */
	struct scion_change out_info; /* and on the way out */
} __attribute__((aligned(8)));

/* A SCION header, and where on its path the packet is. */
struct scion {
	void *data_end;
	void *hdr;
	__u32 len; /* header and payload */
	__u32 hdr_len;
	__u32 meta_off; /* from hdr, as all offsets here */
	__u8 l4; /* protocol behind the extension headers */
	__u32 l4_off;
	const struct path_pos *at;
	bool peering; /* at the peering hop of a peering path */
	void *info;
	void *hop;
	__u16 segid; /* of the current info field, as it stands in memory */
};

/*
 * These read fields where they are needed. A load from the packet costs no more than one from the stack, and registers
 * are few.
 */
static __always_inline __be64 scion_dst_ia(const struct scion *s)
{
	return LOAD64(s->hdr + SCION_ADDR_OFF);
}

static __always_inline __be64 scion_src_ia(const struct scion *s)
{
	return LOAD64(s->hdr + SCION_ADDR_OFF + 8);
}

static __always_inline __u8 scion_dst_type(const struct scion *s)
{
	return LOAD8(s->hdr + 9) >> 4;
}

static __always_inline __u8 scion_src_type(const struct scion *s)
{
	return LOAD8(s->hdr + 9) & 0xf;
}

static __always_inline __u8 scion_info_flags(const struct scion *s)
{
	return LOAD8(s->info);
}

static __always_inline __u8 scion_hop_flags(const struct scion *s)
{
	return LOAD8(s->hop);
}

/* Interface IDs of the current hop field, host order. */
static __always_inline __u16 scion_cons_ingress(const struct scion *s)
{
	return bpf_ntohs(LOAD16(s->hop + 2));
}

static __always_inline __u16 scion_cons_egress(const struct scion *s)
{
	return bpf_ntohs(LOAD16(s->hop + 4));
}

static __always_inline bool scion_known_protocol(__u8 p)
{
	return p == L4_UDP || p == L4_TCP || p == L4_SCMP || p == SCION_HBH || p == SCION_E2E ||
	       p == L4_BFD || p == L4_EXPERIMENT1 || p == L4_EXPERIMENT2;
}

/* Skips one extension header of the given class (slayers decodeExtnBase). */
static __always_inline int scion_skip_ext(struct scion *s, __u8 class)
{
	void *ext;

	if (s->l4 != class)
		return REASON_NONE;
	if (s->l4_off + 2 > s->len)
		return PUNT_SCION_MALFORMED;
	ext = s->hdr + s->l4_off;
	if (ext + 2 > s->data_end)
		return PUNT_SCION_L4;
	s->l4 = LOAD8(ext);
	s->l4_off += (LOAD8(ext + 1) + 1) * 4;
	if (s->l4_off > s->len || s->l4 == SCION_HBH || (class == SCION_E2E && s->l4 == SCION_E2E))
		return PUNT_SCION_MALFORMED;
	return REASON_NONE;
}

static __always_inline int scion_other_path(struct xdp_md *ctx, const struct scion_packet *p,
					    struct scion *s, __u8 type)
{
	/* Hosts of the AS have no BFD session. Their packets must not use up the rate of the sessions. */
	if (s->l4 == L4_BFD && p->in.link && (type == PATH_EMPTY || type == PATH_ONEHOP))
		return scion_check_bfd(ctx, s->hdr + s->hdr_len, p->in.link, p->v6);
	switch (type) {
	case PATH_EMPTY:
		return PUNT_SCION_EMPTY;
	case PATH_ONEHOP:
		return PUNT_SCION_ONEHOP;
	case PATH_EPIC:
		/* see scion_check_src_host */
		if (scion_src_ia(s) == scion_local_ia && scion_src_type(s) == ADDR_SVC)
			return DROP_SCION_SRC_SERVICE;
		return PUNT_SCION_EPIC;
	default:
		return PUNT_SCION_PATH_TYPE;
	}
}

/* Reads the common header, the address header and the extension headers (slayers.SCION, DecodeFromBytes). */
static __always_inline int scion_decode(struct xdp_md *ctx, const struct scion_packet *p,
					struct scion *s)
{
	void *hdr = (void *)(long)ctx->data + (p->v6 ? OUTER_IPV6 : OUTER_IPV4);
	__u32 dst_len, src_len;
	int reason;

	s->hdr = hdr;
	s->data_end = (void *)(long)ctx->data_end;
	s->len = p->len;
	if (s->len < SCION_HOST_OFF || hdr + SCION_HOST_OFF > s->data_end)
		return PUNT_SCION_MALFORMED;
	s->l4 = LOAD8(hdr + 4);
	if (!scion_known_protocol(s->l4))
		return PUNT_SCION_PROTOCOL;
	s->hdr_len = LOAD8(hdr + 5) * 4;
	dst_len = 4 + 4 * (scion_dst_type(s) & 3);
	src_len = 4 + 4 * (scion_src_type(s) & 3);
	s->meta_off = SCION_HOST_OFF + dst_len + src_len;
	if (s->hdr_len < s->meta_off || s->len < s->hdr_len)
		return PUNT_SCION_MALFORMED;
	if (LOAD8(hdr + 8) != PATH_SCION)
		return scion_other_path(ctx, p, s, LOAD8(hdr + 8));
	s->l4_off = s->hdr_len;
	reason = scion_skip_ext(s, SCION_HBH);
	if (reason)
		return reason;
	return scion_skip_ext(s, SCION_E2E);
}

/* Points s to the info and hop field of a position on its path. The caller has checked that they are on the path. */
static __always_inline int scion_seek(struct scion *s, const struct path_pos *at)
{
	void *meta = s->hdr + s->meta_off;

	s->at = at;
	s->info = meta + (at->info_off & 0x1f);
	s->hop = meta + (at->hop_off & 0x3ff);
	if (s->info + SCION_INFO_LEN > s->data_end || s->hop + SCION_HOP_LEN > s->data_end)
		return PUNT_SCION_MALFORMED;
	s->segid = LOAD16(s->info + 2);
	return REASON_NONE;
}

/* Reads the path meta header and the current fields (scion.Base DecodeFromBytes, parsePath, determinePeer). */
static __always_inline int scion_path(struct scion *s)
{
	void *meta = s->hdr + s->meta_off;
	const struct path_pos *at;
	int reason;

	if (s->meta_off + SCION_META_LEN > s->hdr_len || meta + SCION_META_LEN > s->data_end)
		return PUNT_SCION_MALFORMED;
	at = path_pos(LOAD32(meta));
	if (!at || s->meta_off + at->len > s->hdr_len)
		return PUNT_SCION_MALFORMED;
	if (at->flags & PATH_POS_OUTSIDE)
		return DROP_SCION_PATH;
	reason = scion_seek(s, at);
	if (reason)
		return reason;
	if (at->flags & PATH_POS_WRONG_INFO)
		return DROP_SCION_PATH;
	if (!(scion_info_flags(s) & INFO_PEER))
		return at->flags & PATH_POS_LONE_HOP ? DROP_SCION_PATH : REASON_NONE;
	if (at->flags & PATH_POS_NO_PEERING)
		return DROP_SCION_PATH;
	s->peering = at->flags & PATH_POS_AT_PEERING;
	return REASON_NONE;
}

#endif
