/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_SYN_ANSWER_H
#define CULVERT_FILTER_SYN_ANSWER_H

#include "syn_options.h"

/* Length of the TCP header of an answer, bytes: with the MSS alone, and with time stamps, SACK and window scale. */
#define SYN_ACK_SHORT 24
#define SYN_ACK_LONG 40

#define SYN_ACK_TTL 64

/* The shortest Ethernet frame, without its checksum. */
#define SYN_FRAME_MIN 60

/* Four bytes in the order in which they are sent. */
#define SYN_WORD(a, b, c, d) bpf_htonl((__u32)(a) << 24 | (b) << 16 | (c) << 8 | (d))

/* Turns the IP header into that of the answer. */
static __always_inline void syn_answer_ip(void *ip, const struct syn *syn, __u32 tcp_len)
{
	__u32 addr[4] __attribute__((aligned(8)));

	if (syn->v6) {
		STORE32(ip, bpf_htonl(0x60000000));
		STORE16(ip + 4, bpf_htons(tcp_len));
		STORE16(ip + 6, bpf_htons(IPPROTO_TCP << 8 | SYN_ACK_TTL));
		copy(addr, ip + 8, 16);
		copy(ip + 8, ip + 24, 16);
		copy(ip + 24, addr, 16);
		return;
	}
	addr[0] = LOAD32(ip + 12);
	STORE32(ip, SYN_WORD(0x45, 0, 0, sizeof(struct iphdr) + tcp_len));
	STORE32(ip + 4, bpf_htonl(0x4000)); /* identification 0, DF */
	STORE32(ip + 8, SYN_WORD(SYN_ACK_TTL, IPPROTO_TCP, 0, 0));
	STORE32(ip + 12, LOAD32(ip + 16));
	STORE32(ip + 16, addr[0]);
	STORE16(ip + 10, ~csum_fold(ipv4_sum(ip)));
}

/* Writes the TCP header of the answer, except for its checksum. */
static __always_inline void syn_answer_tcp(void *tcp, const struct syn *syn, const __u32 len)
{
	__u16 sport = LOAD16(tcp);

	STORE16(tcp, LOAD16(tcp + 2));
	STORE16(tcp + 2, sport);
	STORE32(tcp + 4, bpf_htonl(syn->cookie));
	STORE32(tcp + 8, bpf_htonl(bpf_ntohl(syn->seq) + 1));
	STORE16(tcp + 12, bpf_htons(len << 10 | TCP_SYN | TCP_ACK));
	STORE16(tcp + 14, bpf_htons(syn->window));
	STORE32(tcp + 16, 0);
	STORE32(tcp + 20, bpf_htonl(TCP_OPT_MSS << 24 | 4 << 16 | syn->mss));
	if (len == SYN_ACK_SHORT)
		return;
	if (syn->opt.has_sack)
		STORE32(tcp + 24, SYN_WORD(TCP_OPT_SACK_OK, 2, TCP_OPT_TS, 10));
	else
		STORE32(tcp + 24, SYN_WORD(TCP_OPT_NOP, TCP_OPT_NOP, TCP_OPT_TS, 10));
	STORE32(tcp + 28, syn->ts);
	STORE32(tcp + 32, syn->opt.ts);
	if (syn->opt.has_wscale)
		STORE32(tcp + 36, SYN_WORD(TCP_OPT_NOP, TCP_OPT_WSCALE, 3, syn->wscale));
	else
		STORE32(tcp + 36, SYN_WORD(TCP_OPT_NOP, TCP_OPT_NOP, TCP_OPT_NOP, TCP_OPT_NOP));
}

static __always_inline void syn_answer_check(const void *ip, void *tcp, bool v6, const __u32 len)
{
	__u64 sum = syn_pseudo(ip, v6, len);
	__u32 i;

#pragma unroll
	for (i = 0; i < len; i += 4)
		sum += LOAD32(tcp + i);
	STORE16(tcp + 16, ~csum_fold(sum));
}

/*
 * Overwrites the SYN with the SYN-ACK. VLAN tags stay. If it returns 0, the packet is unchanged and goes on. With any
 * other reason the packet ends here. XMIT_FILTER_SYNACK has the length of the SYN above it (FILTER_LEN_SHIFT), because
 * packets are counted with the length that they came with.
 */
static __always_inline int syn_answer(struct xdp_md *ctx, const struct syn *syn)
{
	__u32 len = syn->opt.has_ts ? SYN_ACK_LONG : SYN_ACK_SHORT;
	__u32 new_len = syn->l4 + len, l3 = syn->l3, old_len = bpf_xdp_get_buff_len(ctx);
	void *data, *data_end, *ip, *tcp;
	__u16 mac[3] __attribute__((aligned(8)));

	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	if (data + ETH_HLEN > data_end || from_group(data))
		return DROP_FILTER_COOKIE;
	if (new_len < SYN_FRAME_MIN)
		new_len = SYN_FRAME_MIN;
	if (bpf_xdp_adjust_tail(ctx, (int)new_len - (int)old_len))
		return 0;
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	ip = data + l3;
	if (data + SYN_FRAME_MIN > data_end)
		return DROP_FILTER_COOKIE; /* never: the frame has that length now */
	if (new_len == SYN_FRAME_MIN)
		STORE16(data + SYN_FRAME_MIN - 2, 0);
	copy(mac, data, 6);
	copy(data, data + 6, 6);
	copy(data + 6, mac, 6);
	tcp = ip + (syn->v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	if (ip + sizeof(struct ipv6hdr) > data_end || tcp + SYN_ACK_SHORT > data_end)
		return DROP_FILTER_COOKIE;
	syn_answer_ip(ip, syn, len);
	if (len == SYN_ACK_SHORT) {
		syn_answer_tcp(tcp, syn, SYN_ACK_SHORT);
		syn_answer_check(ip, tcp, syn->v6, SYN_ACK_SHORT);
		return XMIT_FILTER_SYNACK | old_len << FILTER_LEN_SHIFT;
	}
	if (tcp + SYN_ACK_LONG > data_end)
		return DROP_FILTER_COOKIE;
	syn_answer_tcp(tcp, syn, SYN_ACK_LONG);
	syn_answer_check(ip, tcp, syn->v6, SYN_ACK_LONG);
	return XMIT_FILTER_SYNACK | old_len << FILTER_LEN_SHIFT;
}

#endif
