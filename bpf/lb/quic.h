/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_QUIC_H
#define CULVERT_LB_QUIC_H

#include "assign.h"

/*
 * QUIC connection IDs that name a server (draft-ietf-quic-load-balancers, plaintext). The first octet has three bits
 * of config rotation; the server ID follows it.
 */

#define QUIC_LONG 0x80
#define QUIC_FIXED 0x40
#define QUIC_V1 0x00000001
#define QUIC_V2 0x6b3343cf

/* Bytes of a long header in front of the destination connection ID. */
#define QUIC_LONG_LEN 6

/* Handshake packets are the first ones whose connection ID comes from the server. */
static __always_inline bool quic_handshake(const void *quic)
{
	__u32 version = bpf_ntohl(LOAD32(quic + 1));
	__u8 type = LOAD8(quic) >> 4 & 3;

	return (version == QUIC_V1 && type == 2) || (version == QUIC_V2 && type == 3);
}

/*
 * Reads the server ID of a packet. The caller has checked that the datagram reaches to quic + QUIC_LONG_LEN + 1 +
 * LB_ID_MAX.
 */
static __always_inline bool quic_server(const void *quic, const struct lb_packet *p,
					struct lb_server_key *key)
{
	__u8 head = LOAD8(quic), i;
	const void *id;

	if (!(head & QUIC_FIXED))
		return false;
	if (head & QUIC_LONG) {
		if (!quic_handshake(quic) || LOAD8(quic + 5) < 1 + p->id_len)
			return false;
		id = quic + QUIC_LONG_LEN;
	} else {
		id = quic + 1;
	}
	if (LOAD8(id) >> 5 != p->id_config)
		return false;
	key->vip = p->flow.vip;
	key->len = p->id_len;
#pragma unroll
	for (i = 0; i < LB_ID_MAX; i++) {
		if (i < p->id_len)
			key->id[i] = LOAD8(id + 1 + i);
	}
	return true;
}

/*
 * The backend that the connection ID of a datagram names, 0 for none. A datagram that has no room for the longest ID
 * in a long header is too short for QUIC anyway (RFC 9001, 5.4.2: 20 bytes behind the ID).
 */
__noinline __u32 lb_quic(struct xdp_md *ctx, const struct lb_packet *p)
{
	struct lb_server_key key __attribute__((aligned(8))) = {};
	void *data_end, *quic;
	__u32 *id, l4;

	if (!lb_on || !p)
		return 0;
	l4 = p->ip == 4 ? 20 : 40;
	data_end = (void *)(long)ctx->data_end;
	quic = lb_ip(ctx, p) + l4 + 8;
	if (p->ip_len < l4 + 8 + QUIC_LONG_LEN + 1 + LB_ID_MAX ||
	    quic + QUIC_LONG_LEN + 1 + LB_ID_MAX > data_end)
		return 0;
	if (!quic_server(quic, p, &key))
		return 0;
	id = bpf_map_lookup_elem(&lb_servers, &key);
	return id ? *id : 0;
}

/*
 * Records the backend of a connection ID in the flow table, for the sake of ICMP errors. A flow that the table
 * already has keeps its backend: the ID may be forged, and the client's handshake packets go by the flow.
 */
__noinline int lb_quic_learn(const struct lb_flow *f, __u32 id, __u32 vip_flags)
{
	__u64 found;
	__u16 time, now;

	if (!lb_on || !f)
		return 0;
	found = lb_flow_lookup(f);
	time = found >> 32;
	now = lb_time();
	if (!found) {
		lb_flow_insert(f, id, false);
	} else if ((__u32)found == id) {
		if (time != (now | LB_FLOW_UDP))
			lb_flow_touch(f, found >> 48, now | LB_FLOW_UDP);
	} else if (lb_time_expired(time, now) || !lb_backend_valid(found, vip_flags)) {
		lb_flow_reassign(f, found, id);
	}
	return 0;
}

#endif
