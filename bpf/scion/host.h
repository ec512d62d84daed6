/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_SCION_HOST_H
#define CULVERT_SCION_HOST_H

#include "path.h"

#define SCION_ENDHOST_PORT 30041

enum scmp_type {
	SCMP_ECHO_REQUEST = 128,
	SCMP_ECHO_REPLY = 129,
	SCMP_TRACEROUTE_REQUEST = 130,
	SCMP_TRACEROUTE_REPLY = 131,
};

/* Bytes of each reply up to the end of its last fixed field. */
#define SCMP_ECHO_LEN 8
#define SCMP_TRACEROUTE_LEN 24

/*
 * Returns the underlay port of the end host, host order (dstScionPort, getDstPortSCMP). It is the same number as the
 * port in the SCION packet. It is negative if the first header behind the extension headers does not have it.
 */
static __always_inline int scion_host_port(struct scion *s)
{
	void *l4 = s->hdr + s->l4_off;
	__u32 len = s->len - s->l4_off;

	switch (s->l4) {
	case L4_UDP:
	case L4_TCP:
		if (len < (s->l4 == L4_UDP ? 8 : 20) || l4 + 4 > s->data_end)
			return -1;
		return bpf_ntohs(LOAD16(l4 + 2));
	case L4_SCMP:
		if (len < 4 || l4 + 6 > s->data_end)
			return -1;
		switch (LOAD8(l4)) {
		case SCMP_ECHO_REQUEST:
		case SCMP_TRACEROUTE_REQUEST:
			return SCION_ENDHOST_PORT;
		case SCMP_ECHO_REPLY:
			return len < SCMP_ECHO_LEN ? -1 : bpf_ntohs(LOAD16(l4 + 4));
		case SCMP_TRACEROUTE_REPLY:
			return len < SCMP_TRACEROUTE_LEN ? -1 : bpf_ntohs(LOAD16(l4 + 4));
		}
		return -1;
	default:
		return SCION_ENDHOST_PORT;
	}
}

/* Delivers a packet to an end host of this AS (resolveInbound). */
static __always_inline int scion_inbound(struct scion *s, struct scion_packet *p)
{
	void *dst = s->hdr + SCION_HOST_OFF;
	int port;

	if (scion_dst_type(s) == ADDR_SVC)
		return PUNT_SCION_SERVICE;
	/* The reference's internal socket has one family. */
	if (scion_dst_type(s) != (scion_internal_v6 ? ADDR_IP6 : ADDR_IP4))
		return PUNT_SCION_DST_HOST;
	if (scion_internal_v6) {
		if (dst + 16 > s->data_end)
			return PUNT_SCION_MALFORMED;
		copy(&p->dst, dst, 16);
		if (!p->dst.w[0] && !p->dst.w[1] &&
		    (p->dst.w[2] == IP4_MAPPED || (!p->dst.w[2] && !p->dst.w[3])))
			return PUNT_SCION_DST_HOST;
	} else {
		if (dst + 4 > s->data_end)
			return PUNT_SCION_MALFORMED;
		p->dst.w[0] = 0;
		p->dst.w[1] = 0;
		p->dst.w[2] = IP4_MAPPED;
		p->dst.w[3] = LOAD32(dst);
		if (!p->dst.w[3])
			return PUNT_SCION_DST_HOST;
	}
	port = scion_host_port(s);
	if (port < 0)
		return PUNT_SCION_L4;
	/* By the SCION header specification. The reference leaves this out (see docs/scion.md). */
	if (port < scion_port_first || port > scion_port_last)
		port = SCION_ENDHOST_PORT;
	p->to_host = true;
	p->dport = bpf_htons(port);
	p->link = 0; /* the internal one */
	return FWD_SCION_IN;
}

#endif
