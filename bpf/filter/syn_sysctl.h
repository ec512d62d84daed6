/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_SYN_SYSCTL_H
#define CULVERT_FILTER_SYN_SYSCTL_H

#include <bpf/bpf_core_read.h>

#include "core/compiler.h"

/* net.core.rmem_max, bytes; 0: not known. Fixed at load time. */
const volatile __u32 filter_rmem_max;

/* The fields of kernel structures that programs read. CO-RE finds them by name. */
struct netns_ipv4 {
	__u8 sysctl_tcp_syncookies;
	__u8 sysctl_tcp_timestamps;
	__u8 sysctl_tcp_window_scaling;
	__u8 sysctl_tcp_sack;
	int sysctl_tcp_rmem[3];
} __attribute__((preserve_access_index));

struct net {
	struct netns_ipv4 ipv4;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct sock_common {
	possible_net_t skc_net;
} __attribute__((preserve_access_index));

struct sock {
	struct sock_common __sk_common;
	int sk_rcvbuf;
	__u8 sk_userlocks : 4;
} __attribute__((preserve_access_index));

struct inet_sock {
	struct sock sk;
} __attribute__((preserve_access_index));

struct inet_connection_sock {
	struct inet_sock icsk_inet;
} __attribute__((preserve_access_index));

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 window_clamp;
} __attribute__((preserve_access_index));

#define SOCK_RCVBUF_LOCK 2

/* The settings that decide what the kernel does with the ACK to an answer. */
struct syn_sysctl {
	__u32 rcvbuf;
	__u8 cookies;
	__u8 timestamps;
	__u8 scaling;
	__u8 sack;
	__u8 scales; /* whether wscale is known */
	__u8 wscale; /* of the connection's window */
};

/* The window scale for a window of that many bytes (tcp_select_initial_window). */
static __always_inline __u8 syn_wscale(__u32 space)
{
	__u8 n = 0;

#pragma unroll
	for (__u32 i = 1; i <= 14; i++)
		if (space >> (15 + i))
			n = i;
	return n;
}

/* Reads the listener's sysctls for each SYN, because they may change at any time. */
static __always_inline void syn_sysctl(struct bpf_sock *sk, struct syn_sysctl *set)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	struct netns_ipv4 *ipv4;
	struct sock *s;
	__u32 space;

	if (!tcp)
		return;
	s = &tcp->inet_conn.icsk_inet.sk;
	ipv4 = &s->__sk_common.skc_net.net->ipv4;
	set->cookies = ipv4->sysctl_tcp_syncookies;
	set->timestamps = ipv4->sysctl_tcp_timestamps;
	set->scaling = ipv4->sysctl_tcp_window_scaling;
	set->sack = ipv4->sysctl_tcp_sack;
	set->rcvbuf = s->sk_rcvbuf;
	/* For a listener that limits its own window the window scale stays unknown. */
	if (!filter_rmem_max || tcp->window_clamp ||
	    BPF_CORE_READ_BITFIELD(s, sk_userlocks) & SOCK_RCVBUF_LOCK)
		return;
	space = ipv4->sysctl_tcp_rmem[2];
	if (space < filter_rmem_max)
		space = filter_rmem_max;
	set->wscale = syn_wscale(space);
	set->scales = true;
}

#endif
