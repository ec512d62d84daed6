/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_SCION_SEND_H
#define CULVERT_SCION_SEND_H

#include "core/checksum.h"
#include "core/clock.h"
#include "core/seqcount.h"
#include "core/takes.h"

#include "path.h"

#ifndef AF_INET
#define AF_INET 2
#define AF_INET6 10
#endif

/* Data that does not fit on the stack. */
struct scion_scratch {
	struct scion_packet p;
	struct wall_clock clock;
	struct bpf_fib_lookup fib;
	struct next_hop hop;
};

/* Writer: the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scion_scratch);
} scion_scratch SEC(".maps");

/*
 * Returns the next hop that the kernel's FIB gives, for one that is not known. The kernel is asked only where no
 * process keeps the next hops up to date. Forwarding has to be on, and the route has to lead through an interface of
 * the data plane.
 */
static __noinline struct next_hop *scion_fib(struct xdp_md *ctx, struct scion_link *l, __u32 l4_len,
					     const struct ip_addr *dst)
{
	struct scion_scratch *m;
	struct port *port;
	__u32 key = 0;

	if (!scion_use_fib)
		return NULL;
	m = bpf_map_lookup_elem(&scion_scratch, &key);
	if (!m)
		return NULL;
	__builtin_memset(&m->fib, 0, sizeof(m->fib));
	m->fib.ifindex = port_dev(ctx->ingress_ifindex);
	m->fib.l4_protocol = IPPROTO_UDP;
	if (l->v6) {
		m->fib.family = AF_INET6;
		m->fib.tot_len = l4_len + 40;
		copy(m->fib.ipv6_src, l->ip + 8, 16);
		copy(m->fib.ipv6_dst, l->scope == SCOPE_INTERNAL ? (void *)dst : l->ip + 24, 16);
	} else {
		m->fib.family = AF_INET;
		m->fib.tot_len = l4_len + 20;
		m->fib.ipv4_src = LOAD32(l->ip + 12);
		m->fib.ipv4_dst = l->scope == SCOPE_INTERNAL ? dst->w[3] : LOAD32(l->ip + 16);
	}
	if (bpf_fib_lookup(ctx, &m->fib, sizeof(m->fib), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return NULL;
	key = m->fib.ifindex;
	port = bpf_map_lookup_elem(&ports, &key);
	if (!port || !port->slot || !port->xmit)
		return NULL;
	m->hop.port = m->fib.ifindex;
	m->hop.mtu = 0xffff; /* the lookup has compared the length with the MTU */
	m->hop.linear_only = !!(port->spread & PORT_LINEAR);
	copy(m->hop.dmac, m->fib.dmac, 6);
	copy(m->hop.smac, m->fib.smac, 6);
	return &m->hop;
}

/* The sum that removes the old outer addresses and ports from a checksum (RFC 1624). */
static __always_inline __u64 scion_old_sum(void *data, void *data_end, bool v6)
{
	__u64 sum;

	/* The frame is that long. Older verifiers do not connect the earlier check with this test of v6. */
	barrier_var(data);
	if (data + OUTER_IPV4 > data_end)
		return 0;
	if (!v6)
		return (__u64)(__u32)~LOAD32(data + IPV4_SADDR) +
		       (__u32)~LOAD32(data + IPV4_DADDR) + (__u32)~LOAD32(data + OUTER_IPV4 - 8);
	barrier_var(data);
	if (data + OUTER_IPV6 > data_end)
		return 0;
	sum = ipv6_sum(data + IPV6_SADDR) + ipv6_sum(data + IPV6_DADDR) +
	      LOAD32(data + OUTER_IPV6 - 8);
	return (__u16)~csum_fold(sum);
}

/* Returns the new UDP checksum, from the old one (RFC 1624). 0 stands for none and stays 0. */
static __always_inline __u16 scion_udp_check(void *data, const struct scion_packet *p,
					     const struct scion_link *l, bool was_v6, bool v6,
					     bool to_host, void *data_end)
{
	__u64 sum = l->l4_sum;
	__u16 check;

	if (!p->check)
		return 0;
	if (to_host) {
		sum += p->dport;
		sum += v6 ? ipv6_sum(&p->dst) : p->dst.w[3];
	}
	sum += (__u16)~p->check;
	sum += scion_old_sum(data, data_end, was_v6);
	/* ~from + to adds nothing where nothing changes */
	sum += (__u64)(__u32)~p->meta_from + p->meta_to;
	sum += (__u64)(__u32)~p->in_info.from + p->in_info.to;
	sum += (__u64)(__u32)~p->out_info.from + p->out_info.to;
	check = ~csum_fold(sum);
	return check ?: 0xffff;
}

static __always_inline void scion_write_ipv4(void *ip, const struct scion_packet *p,
					     const struct scion_link *l, bool to_host, __u16 check)
{
	__u32 udp_len = p->len + sizeof(struct udphdr);
	__be16 len = bpf_htons(udp_len + sizeof(struct iphdr));
	__u64 sum = (__u64)l->ip_sum + len;

	copy(ip, l->ip, 28);
	if (to_host) {
		STORE32(ip + 16, p->dst.w[3]);
		STORE16(ip + 22, p->dport);
		sum += p->dst.w[3];
	}
	STORE16(ip + 2, len);
	STORE16(ip + 10, ~csum_fold(sum));
	STORE16(ip + 24, bpf_htons(udp_len));
	STORE16(ip + 26, check);
}

static __always_inline void scion_write_ipv6(void *ip, const struct scion_packet *p,
					     const struct scion_link *l, bool to_host, __u16 check)
{
	__be16 len = bpf_htons(p->len + sizeof(struct udphdr));

	copy(ip, l->ip, 48);
	if (to_host) {
		copy(ip + 24, &p->dst, 16);
		STORE16(ip + 42, p->dport);
	}
	STORE16(ip + 4, len);
	STORE16(ip + 44, len);
	STORE16(ip + 46, check);
}

/* Copies the next hop. Returns REASON_NONE, or the reason if there is none now. */
static __always_inline int scion_next_hop(struct xdp_md *ctx, struct scion_packet *p,
					  struct scion_link *l, struct next_hop *copy)
{
	struct next_hop *hop = &l->hop;
	int missing = PUNT_SCION_NEXT_HOP;
	__u32 seq;

	if (p->to_host) {
		struct ip_addr dst = p->dst;
		struct scion_host *host;

		/* The verifier of 6.1 takes keys from the stack only. */
		host = bpf_map_lookup_elem(&scion_hosts, &dst);
		if (host) {
			__u32 used = p->recent >> HOST_USED_SHIFT;

			/* Storing it for each packet would make the CPUs wait for the cache line. */
			if (*(volatile __u32 *)&host->used != used)
				*(volatile __u32 *)&host->used = used;
		}
		hop = host ? &host->hop : NULL;
		missing = host ? PUNT_SCION_HOST_KERNEL : PUNT_SCION_HOST_UNKNOWN;
	}
	if (!hop || !hop->port)
		hop = scion_fib(ctx, l, p->len + sizeof(struct udphdr), &p->dst);
	if (!hop)
		return missing;
	/*
	 * The counter is that of the link's next hop. A host's next hop never changes in place, because user space
	 * replaces the element.
	 */
	seq = seq_begin(&l->seq);
	*copy = *hop;
	if (!copy->port || !seq_same(&l->seq, seq))
		return missing;
	return REASON_NONE;
}

/*
 * Writes the outer header and the changes of the path. Returns the interface, or a negative reason. For the most common
 * kind of packet it is inlined with constants, and clang removes the other branches. It writes nothing before it has
 * the headroom, so a packet that cannot leave is unchanged.
 */
static __always_inline int scion_rewrite(struct xdp_md *ctx, const struct scion_packet *p,
					 const struct scion_link *l, const struct next_hop *hop,
					 bool was_v6, bool v6, bool to_host)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	void *meta, *in_info, *out_info;
	__u16 check;

	if (data + (was_v6 ? OUTER_IPV6 : OUTER_IPV4) > data_end)
		return -PUNT_SCION_MALFORMED;
	if (!next_hop_takes(ctx, hop, data_end - data))
		return -PUNT_SCION_BUFFERS;
	check = scion_udp_check(data, p, l, was_v6, v6, to_host, data_end);
	if (v6 != was_v6) {
		if (bpf_xdp_adjust_head(ctx,
					v6 ? OUTER_IPV4 - OUTER_IPV6 : OUTER_IPV6 - OUTER_IPV4))
			return -PUNT_SCION_MALFORMED;
		data = (void *)(long)ctx->data;
		data_end = (void *)(long)ctx->data_end;
	}
	meta = data + (v6 ? OUTER_IPV6 : OUTER_IPV4) + (p->meta_off & 0x3f);
	in_info = meta + (p->in_info.off & 0x1f);
	out_info = meta + (p->out_info.off & 0x1f);
	/* Always true: the header was there before. */
	if (data + OUTER_IPV6 > data_end || meta + 4 > data_end || in_info + 4 > data_end ||
	    out_info + 4 > data_end)
		return -DROP_SCION_PATH;
	STORE32(meta, p->meta_to);
	if (p->in_info.off)
		STORE32(in_info, p->in_info.to);
	if (p->out_info.off)
		STORE32(out_info, p->out_info.to);
	if (v6)
		scion_write_ipv6(data + ETH_HLEN, p, l, to_host, check);
	else
		scion_write_ipv4(data + ETH_HLEN, p, l, to_host, check);
	eth_write(data, hop, 0);
	eth_write_type(data + ETH_HLEN, v6);
	return hop->port;
}

/*
 * Sends the packet to the next hop of the link that it leaves by. Returns the interface, or the negative reason why
 * it cannot leave; the packet is unchanged then.
 */
__noinline int scion_send(struct xdp_md *ctx, struct scion_packet *p)
{
	struct next_hop hop;
	struct scion_link *l;
	bool v6, was_v6;
	int missing;
	__u32 link;

	if (!p)
		return -PUNT_SCION_MALFORMED;
	link = p->link;
	l = bpf_map_lookup_elem(&scion_links, &link);
	if (!l)
		return -PUNT_SCION_EGRESS;
	v6 = l->v6;
	was_v6 = p->v6; /* read once, for the verifier */
	p->out_counters = l->counters;
	missing = scion_next_hop(ctx, p, l, &hop);
	if (missing)
		return -missing;
	if (p->len + (v6 ? OUTER_IPV6 : OUTER_IPV4) - ETH_HLEN > hop.mtu)
		return -PUNT_SCION_MTU;
	if (v6 && !p->check)
		return -PUNT_SCION_CHECKSUM;
	if (!v6 && !was_v6 && !p->to_host)
		return scion_rewrite(ctx, p, l, &hop, false, false, false);
	return scion_rewrite(ctx, p, l, &hop, was_v6, v6, p->to_host);
}

#endif
