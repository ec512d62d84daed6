/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_SYN_LISTENER_H
#define CULVERT_FILTER_SYN_LISTENER_H

#include "syn_cookie.h"
#include "syn_sysctl.h"

#define ENOENT 2
#define TCP_LISTEN 10

#ifndef AF_INET
#define AF_INET 2
#define AF_INET6 10
#endif

/* The window of an answer, bytes: more than a sender may have in flight at first (RFC 6928). */
#define SYN_WINDOW 29200

/* The MSS that the MTU of the interface allows. */
static __always_inline __u16 syn_mss(struct xdp_md *ctx, bool v6)
{
	__u32 mtu = 0,
	      header = sizeof(struct tcphdr) + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));

	if (bpf_check_mtu(ctx, 0, &mtu, 0, 0) < 0 || mtu < 536 + header)
		return 536; /* RFC 9293, 3.7.1 */
	return mtu - header > 0xffff ? 0xffff : mtu - header;
}

/* Decides on a SYN to a listener. XMIT_FILTER_SYNACK means that the answer is in syn. */
static __always_inline int syn_cookie(struct xdp_md *ctx, struct syn *syn, struct bpf_sock *sk,
				      void *ip, __u32 ip_len)
{
	struct syn_short s;
	struct syn_sysctl set = {};
	__s64 v;

	if (!syn_shorten(ctx, syn, &s))
		return 0;
	syn_sysctl(sk, &set);
	v = bpf_tcp_gen_syncookie(sk, ip, ip_len, &s.tcp, sizeof(s));
	/* With tcp_syncookies 2 each SYN gets a cookie. The helper makes none only if the accept queue is full. */
	if (v == -ENOENT && set.cookies == 2)
		return DROP_FILTER_COOKIE;
	if (v < 0)
		return 0;
	syn->cookie = v;
	syn->mss = syn_mss(ctx, syn->v6);
	syn->window = set.rcvbuf / 2 < SYN_WINDOW ? set.rcvbuf / 2 : SYN_WINDOW;
	/* With tcp_timestamps 1 the kernel adds an offset to time stamps, which only the kernel knows. */
	if (set.timestamps != 2)
		syn->opt.has_ts = false;
	if (!syn->opt.has_ts)
		return XMIT_FILTER_SYNACK;
	if (!set.sack)
		syn->opt.has_sack = false;
	if (!set.scaling || !set.scales)
		syn->opt.has_wscale = false;
	syn->wscale = set.wscale;
	syn_encode(syn);
	return XMIT_FILTER_SYNACK;
}

/* Decides on a packet to a listener. The packet belongs to no connection. */
static __always_inline int syn_judge(struct xdp_md *ctx, struct syn *syn, struct bpf_sock *sk,
				     void *ip, __u32 ip_len)
{
	struct tcphdr *tcp = ip + ip_len;
	void *data_end = (void *)(long)ctx->data_end;

	if ((void *)tcp + sizeof(*tcp) > data_end)
		return 0;
	if ((syn->flags & SYN_FLAGS) == TCP_SYN)
		return syn_cookie(ctx, syn, sk, ip, ip_len);
	/* The kernel answers no packet that has neither ACK nor SYN, and no SYN with FIN. */
	if ((syn->flags & (TCP_ACK | TCP_RST | TCP_SYN)) != TCP_ACK)
		return DROP_FILTER_COOKIE;
	if (bpf_tcp_check_syncookie(sk, ip, ip_len, tcp, sizeof(*tcp)) == -ENOENT)
		return DROP_FILTER_COOKIE;
	return 0;
}

/*
 * Whether the packet is for another host. The listener that was found does not tell: one on all addresses is found for
 * any address. The result of the FIB lookup is the same for addresses of this host and for those without a route. Where
 * forwarding is off the lookup always says so, and no packet gets to another host. It is a global function, which the
 * verifier checks once.
 */
__noinline int syn_passes_through(struct xdp_md *ctx, const struct flow_keys *keys)
{
	struct bpf_fib_lookup fib __attribute__((aligned(8))) = {};
	long answer;

	if (!keys)
		return 1;
	fib.l4_protocol = IPPROTO_TCP;
	fib.sport = keys->sport;
	fib.dport = keys->dport;
	fib.ifindex = port_dev(ctx->ingress_ifindex);
	if (keys->ip == 6) {
		fib.family = AF_INET6;
		copy(fib.ipv6_src, &keys->src, 16);
		copy(fib.ipv6_dst, &keys->dst, 16);
	} else {
		fib.family = AF_INET;
		fib.ipv4_src = keys->src.w[3];
		fib.ipv4_dst = keys->dst.w[3];
	}
	answer = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
	return answer != BPF_FIB_LKUP_RET_NOT_FWDED && answer != BPF_FIB_LKUP_RET_FWD_DISABLED;
}

/*
 * Decides on a packet to a service on this host. Returns 0 for a packet of a connection, for one with a valid cookie,
 * and when nobody listens. Returns XMIT_FILTER_SYNACK for a SYN, and has filled in the answer in syn.
 */
static __always_inline int syn_listener(struct xdp_md *ctx, const struct flow_keys *keys,
					struct syn *syn)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	void *ip = data + syn->l3, *tcp;
	struct bpf_sock_tuple tuple __attribute__((aligned(8))) = {};
	struct bpf_sock *sk;
	int reason = 0;

	if (syn->v6) {
		tcp = ip + sizeof(struct ipv6hdr);
		if (tcp + 4 > data_end)
			return 0;
		copy(&tuple.ipv6.saddr, ip + 8, 32);
		copy(&tuple.ipv6.sport, tcp, 4);
		sk = bpf_skc_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	} else {
		tcp = ip + sizeof(struct iphdr);
		if (tcp + 4 > data_end)
			return 0;
		copy(&tuple.ipv4.saddr, ip + 12, 8);
		copy(&tuple.ipv4.sport, tcp, 4);
		sk = bpf_skc_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	}
	if (!sk)
		return 0;
	if (sk->state == TCP_LISTEN && !syn_passes_through(ctx, keys)) {
		if (syn->v6)
			reason = syn_judge(ctx, syn, sk, ip, sizeof(struct ipv6hdr));
		else
			reason = syn_judge(ctx, syn, sk, ip, sizeof(struct iphdr));
	}
	bpf_sk_release(sk);
	return reason;
}

#endif
