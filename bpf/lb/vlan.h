/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_VLAN_H
#define CULVERT_LB_VLAN_H

#include "vip.h"

/*
 * A trunk may carry VLANs that this machine does not take part in. A VIP answers on VLANs that the machine has a
 * device for, as the machine's own addresses do, and on those that the VIP names.
 */
#define LB_VLANS 4096

struct lb_vlan {
	__u32 dev; /* index of the VLAN device that is up, 0 for none */
	__u32 pad;
};

/* Key: (slot - 1) * LB_VLANS + VLAN ID. Writer: lbplane, in mapped memory. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lb_vlan);
} lb_vlans SEC(".maps");

/* A VLAN that a VIP of the address names. */
struct lb_named_vlan {
	struct ip_addr addr;
	__u32 id;
};

/* Writer: lbplane. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct lb_named_vlan);
	__type(value, __u8);
} lb_named_vlans SEC(".maps");

/* The VLAN device that a tagged packet comes in by for the kernel, 0 for none. */
static __always_inline __u32 lb_vlan_dev(const struct packet *pkt)
{
	__u32 key = (pkt->port->slot - 1) * LB_VLANS + (pkt->vlan & (LB_VLANS - 1));
	const struct lb_vlan *v = bpf_map_lookup_elem(&lb_vlans, &key);

	return v ? *(volatile const __u32 *)&v->dev : 0;
}

/* Reads the destination of a packet. False if the header is truncated. */
static __always_inline bool lb_dst(const struct packet *pkt, struct ip_addr *dst)
{
	const void *ip = pkt->data + pkt->l3;

	barrier_var(ip);
	if (pkt->ip == 4) {
		if (ip + 20 > pkt->data_end)
			return false;
		dst->w[0] = 0;
		dst->w[1] = 0;
		dst->w[2] = IP4_MAPPED;
		dst->w[3] = LOAD32(ip + 16);
		return true;
	}
	if (ip + 40 > pkt->data_end)
		return false;
	copy(dst, ip + 24, 16);
	return true;
}

/* Whether a VIP of the packet's destination names its VLAN. */
static __noinline bool lb_vlan_named(const struct packet *pkt)
{
	struct lb_named_vlan key __attribute__((aligned(8))) = {};

	key.id = pkt->vlan & (LB_VLANS - 1);
	return lb_dst(pkt, &key.addr) && bpf_map_lookup_elem(&lb_named_vlans, &key);
}

/* Whether VIPs take packets with the tag of this one. */
static __always_inline bool lb_vlan_accepted(const struct packet *pkt)
{
	return !pkt->vlan || lb_vlan_dev(pkt) || lb_vlan_named(pkt);
}

#endif
