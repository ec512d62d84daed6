// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "stages.h"

#include "vip.h"
#include "send.h"

/*
 * Sends the packets of health checks. They come from sockets of this host that connect to a VIP. Each goes to the
 * backend that its mark names, in the same way as packets of clients.
 */

/*
 * The upper bits of the mark of such a packet. The lower bits are the number of a backend (lbplane.ProbeMark). Other
 * marks in use are usually single bits or low numbers. Packets with those are left alone.
 */
#define LB_PROBE_MARK 0xc01

/* The packet as the load balancer sees it. */
struct lb_probe_packet {
	struct lb_flow flow;
	__u32 ip_len;
	__u8 tos;
	bool v6;
};

static __always_inline bool lb_probe_parse(struct __sk_buff *skb, struct lb_probe_packet *p)
{
	const void *ip = (void *)(long)skb->data + ETH_HLEN, *end = (void *)(long)skb->data_end;
	const void *l4;

	if (ip + 20 > end)
		return false;
	if (skb->protocol == bpf_htons(ETH_P_IP) && LOAD8(ip) == 0x45) {
		p->flow.src[1] = (__u64)LOAD32(ip + 12) << 32 | IP4_MAPPED;
		p->ip_len = bpf_ntohs(LOAD16(ip + 2));
		l4 = ip + 20;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6) && ip + 40 <= end) {
		p->v6 = true;
		p->flow.src[0] = LOAD64(ip + 8);
		p->flow.src[1] = LOAD64(ip + 16);
		p->ip_len = sizeof(struct ipv6hdr) + bpf_ntohs(LOAD16(ip + 4));
		l4 = ip + 40;
	} else {
		return false;
	}
	if (l4 + 4 > end)
		return false;
	p->flow.ports = LOAD32(l4);
	p->tos = lb_tos(ip, p->v6);
	return true;
}

/* Whether the packet is to the address of a VIP. The mark alone does not tell, because others may set the same one. */
static __always_inline bool lb_probe_is(struct __sk_buff *skb)
{
	struct lb_vip_key key __attribute__((aligned(8))) = {};
	const void *ip = (void *)(long)skb->data + ETH_HLEN, *end = (void *)(long)skb->data_end;

	if (!skb->vlan_present && skb->protocol == bpf_htons(ETH_P_8021Q))
		ip += VLAN_HLEN;
	barrier_var(ip);
	if (ip + 20 > end)
		return false;
	if (LOAD8(ip) >> 4 == 4) {
		key.addr.w[2] = IP4_MAPPED;
		key.addr.w[3] = LOAD32(ip + 16);
	} else {
		if (ip + 40 > end)
			return false;
		copy(&key.addr, ip + 24, 16);
	}
	key.proto = IPPROTO_TCP;
	if (lb_vip_any_port(&key))
		return true;
	key.proto = IPPROTO_UDP;
	return lb_vip_any_port(&key);
}

/* Makes room for the outer headers. The flags have the kernel complete the inner checksum. */
static __always_inline bool lb_probe_grow(struct __sk_buff *skb, const struct lb_backend *backend)
{
	__u64 flags = backend->v6 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV4;
	__u32 overhead = lb_overhead(backend);

	if (backend->encap == LB_GUE)
		flags |= BPF_F_ADJ_ROOM_ENCAP_L4_UDP;
	return !overhead || !bpf_skb_adjust_room(skb, overhead, BPF_ADJ_ROOM_MAC, flags);
}

static __always_inline bool lb_probe_send(struct __sk_buff *skb, const struct lb_backend *backend)
{
	struct lb_probe_packet p = {};
	void *data, *end;

	if ((skb->vlan_present || skb->protocol == bpf_htons(ETH_P_8021Q)) && bpf_skb_vlan_pop(skb))
		return false;
	if (!lb_probe_parse(skb, &p) || p.ip_len + lb_overhead(backend) > backend->hop.mtu)
		return false;
	p.flow.vip = backend->vip;
	lb_flow_hash(&p.flow);
	if (!lb_probe_grow(skb, backend))
		return false;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (data + ETH_HLEN > end)
		return false; /* never */
	eth_write(data, &backend->hop, 0); /* the kernel adds the tag */
	if (backend->encap != LB_L2 &&
	    !lb_outer(data + ETH_HLEN, end, backend, p.tos, p.v6, p.ip_len, p.flow.hash >> 16))
		return false; /* never */
	return !backend->hop.vlan ||
	       !bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), backend->hop.vlan & 0xfff);
}

/* Reads the backend that has the number, whatever its generation. */
static __always_inline bool lb_probe_backend(__u32 number, struct lb_backend *backend)
{
	struct lb_backend_latch *latch = bpf_map_lookup_elem(&lb_backends, &number);

	return latch && lb_backend_read(latch, latch->version[latch->seq & 1].id, backend) &&
	       backend->hop.port;
}

SEC("tc")
int lb_probe(struct __sk_buff *skb)
{
	struct lb_backend backend __attribute__((aligned(8)));
	__u32 mark = skb->mark;

	if (mark >> LB_NUMBER_BITS != LB_PROBE_MARK || !lb_probe_is(skb))
		return TC_ACT_UNSPEC;
	if (!lb_probe_backend(mark & LB_NUMBER, &backend) || !lb_probe_send(skb, &backend))
		return TC_ACT_SHOT;
	skb->mark = 0; /* the interface that it leaves by may have this program too */
	return bpf_redirect(backend.hop.port, 0);
}

char _license[] SEC("license") = "Dual BSD/GPL";
