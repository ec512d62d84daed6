/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_ICMP_H
#define CULVERT_LB_ICMP_H

#include "core/checksum.h"

#include "send.h"
#include "assign.h"

/* ICMP to the address of a VIP. Errors go to the backend of the flow that they quote. Echo requests are answered. */

#define LB_ICMP_LEN 8

#define ICMP4_ECHO_REPLY 0
#define ICMP4_UNREACHABLE 3
#define ICMP4_TOO_BIG 4 /* code */
#define ICMP4_ECHO 8
#define ICMP4_TIME 11
#define ICMP4_PARAMETER 12
#define ICMP6_UNREACHABLE 1
#define ICMP6_TOO_BIG 2
#define ICMP6_PARAMETER 4
#define ICMP6_ECHO 128
#define ICMP6_ECHO_REPLY 129

/* Whether a source may get an answer: it is no multicast, unspecified or loopback address. */
static __always_inline bool lb_icmp_may_answer(const void *ip, bool v4)
{
	__u8 a;

	if (v4) {
		a = LOAD8(ip + 12);
		return a && a != 127 && a < 224;
	}
	/* not multicast, and not in ::/96, which has the unspecified and the loopback address */
	return LOAD8(ip + 8) != 0xff && (LOAD64(ip + 8) || LOAD32(ip + 16));
}

static __always_inline void lb_swap(void *a, void *b, const __u32 words)
{
	__u32 i;

#pragma unroll
	for (i = 0; i < words; i++) {
		__u16 w = LOAD16(a + 2 * i);

		STORE16(a + 2 * i, LOAD16(b + 2 * i));
		STORE16(b + 2 * i, w);
	}
}

/* Writes 16 bits, and updates the checksum that covers them (RFC 1624). */
static __always_inline void lb_patch(void *at, void *check, __u16 value)
{
	__u64 sum = (__u64)(__u16)~LOAD16(check) + (__u16)~LOAD16(at) + value;

	STORE16(at, value);
	STORE16(check, ~csum_fold(sum));
}

/* Turns an echo request into its reply. Swapping the addresses leaves the checksums as they are. */
static __always_inline int lb_icmp_echo(void *data, void *ip, bool v4, const struct lb_packet *p,
					struct lb_vip_key *key)
{
	void *icmp = ip + (v4 ? 20 : 40);

	if (!lb_icmp_may_answer(ip, v4) || from_group(data))
		return REASON_NONE;
	key->proto = IPPROTO_TCP;
	if (!lb_vip_any_port(key)) {
		key->proto = IPPROTO_UDP;
		if (!lb_vip_any_port(key))
			return REASON_NONE;
	}
	lb_swap(data, data + 6, 3);
	if (v4) {
		lb_swap(ip + 12, ip + 16, 2);
		lb_patch(ip + 8, ip + 10, bpf_htons(LB_TTL << 8 | IPPROTO_ICMP));
		lb_patch(icmp, icmp + 2, bpf_htons(ICMP4_ECHO_REPLY << 8));
		/*
		 * If all of the reply is 0, its checksum has to be 0xffff, but RFC 1624 gives 0. For any other reply
		 * both are right.
		 */
		if (!LOAD16(icmp + 2) && !LOAD32(icmp + 4))
			STORE16(icmp + 2, 0xffff);
	} else {
		lb_swap(ip + 8, ip + 24, 8);
		*(__u8 *)(ip + 7) = LB_TTL;
		lb_patch(icmp, icmp + 2, bpf_htons(ICMP6_ECHO_REPLY << 8));
	}
	return XMIT_LB_ECHO;
}

/*
 * Reads the packet that an ICMP error quotes. It has to be from the VIP to the client, so its source is the error's
 * destination. False if the error quotes anything else, or too little.
 */
static __always_inline bool lb_icmp_quoted(const void *ip, bool v4, const void *data_end,
					   struct lb_packet *p, struct lb_vip_key *key)
{
	const void *quoted = ip + (v4 ? 20 : 40) + LB_ICMP_LEN, *l4;
	__u32 ports;

	if (v4) {
		l4 = quoted + 20;
		if (l4 + 8 > data_end || p->ip_len < 20 + LB_ICMP_LEN + 20 + 8)
			return false;
		if (LOAD8(quoted) != 0x45 || LOAD16(quoted + 6) & bpf_htons(0x1fff) ||
		    LOAD32(quoted + 12) != LOAD32(ip + 16))
			return false;
		key->proto = LOAD8(quoted + 9);
		p->flow.src[0] = 0;
		p->flow.src[1] = (__u64)LOAD32(quoted + 16) << 32 | IP4_MAPPED;
	} else {
		l4 = quoted + 40;
		if (l4 + 8 > data_end || p->ip_len < 40 + LB_ICMP_LEN + 40 + 8)
			return false;
		if ((LOAD8(quoted) & 0xf0) != 0x60 || LOAD64(quoted + 8) != LOAD64(ip + 24) ||
		    LOAD64(quoted + 16) != LOAD64(ip + 32))
			return false;
		key->proto = LOAD8(quoted + 6);
		p->flow.src[0] = LOAD64(quoted + 24);
		p->flow.src[1] = LOAD64(quoted + 32);
		if (key->proto == IPPROTO_FRAGMENT) { /* Only the first fragment has the ports. */
			if (l4 + 16 > data_end || p->ip_len < 40 + LB_ICMP_LEN + 40 + 16 ||
			    LOAD16(l4 + 2) & bpf_htons(0xfff8))
				return false;
			key->proto = LOAD8(l4);
			l4 += 8;
		}
	}
	if (key->proto != IPPROTO_TCP && key->proto != IPPROTO_UDP)
		return false;
	ports = LOAD32(l4);
	key->port = LOAD16(l4);
	p->flow.ports = ports << 16 | ports >> 16; /* as in packets of the client */
	return true;
}

static __always_inline int lb_icmp_error(const void *ip, bool v4, const void *data_end,
					 struct lb_packet *p, struct lb_vip_key *key)
{
	const struct lb_vip *vip;

	if (!lb_icmp_quoted(ip, v4, data_end, p, key))
		return REASON_NONE;
	p->proto = key->proto;
	vip = lb_vip(key);
	if (!vip)
		return REASON_NONE;
	p->quiet = true;
	lb_flow_set_vip(p, vip);
	p->backend = lb_flow_lookup(&p->flow);
	if (!p->backend || !lb_backend_valid(p->backend, p->vip_flags))
		p->backend = lb_ring_lookup(&p->flow, p->vip_flags, p->proto);
	if (!p->backend || !lb_backend_valid(p->backend, 0)) {
		lb_event(p->flow.vip, LB_EVENT_EMPTY);
		return PASS_LB_EMPTY;
	}
	lb_event(p->flow.vip, LB_EVENT_ICMP);
	return FWD_LB_ICMP;
}

/*
 * Decides on an ICMP packet that is no fragment: turns an echo request into its reply, or sets the backend that an
 * error goes to.
 */
__noinline int lb_icmp(struct xdp_md *ctx, struct lb_packet *p)
{
	struct lb_vip_key key __attribute__((aligned(8))) = {};
	void *data, *ip, *data_end;
	__u8 type, code;

	if (!lb_on || !p)
		return REASON_NONE;
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	ip = lb_ip(ctx, p);
	if (p->ip == 4) {
		if (p->ip_len < 20 + LB_ICMP_LEN || ip + 20 + LB_ICMP_LEN > data_end)
			return REASON_NONE;
		lb_addresses(ip, true, &key, &p->flow);
		type = LOAD8(ip + 20);
		code = LOAD8(ip + 21);
		if (type == ICMP4_ECHO && !code)
			return lb_icmp_echo(data, ip, true, p, &key);
		if (type == ICMP4_UNREACHABLE || type == ICMP4_TIME || type == ICMP4_PARAMETER)
			return lb_icmp_error(ip, true, data_end, p, &key);
		return REASON_NONE;
	}
	if (p->ip_len < 40 + LB_ICMP_LEN || ip + 40 + LB_ICMP_LEN > data_end)
		return REASON_NONE;
	lb_addresses(ip, false, &key, &p->flow);
	type = LOAD8(ip + 40);
	code = LOAD8(ip + 41);
	if (type == ICMP6_ECHO && !code)
		return lb_icmp_echo(data, ip, false, p, &key);
	if (type >= ICMP6_UNREACHABLE && type <= ICMP6_PARAMETER)
		return lb_icmp_error(ip, false, data_end, p, &key);
	return REASON_NONE;
}

#endif
