/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_NEXT_HOP_H
#define CULVERT_CORE_NEXT_HOP_H

#include "packet.h"

/* How frames get to a neighbor. User space writes it. Its sequence counter is in the structure around it. */
struct next_hop {
	__u32 port; /* index of the interface that frames leave by; 0: not known */
	__u16 mtu; /* of the IP packet, bytes */
	__u16 vlan; /* PACKET_TAGGED + VLAN ID to put on, or 0 */
	__u8 dmac[6];
	__u8 linear_only; /* the port takes no frames of several buffers */
	__u8 pad;
	__u8 smac[6];
	__u8 pad2[2];
} __attribute__((aligned(8))); /* so that it is copied by 8 bytes */

/* Programs load an address with the two bytes behind it, and store it over what they write next. */
_Static_assert(__builtin_offsetof(struct next_hop, dmac) + 8 <= sizeof(struct next_hop) &&
		       __builtin_offsetof(struct next_hop, smac) + 8 <= sizeof(struct next_hop),
	       "an address of a next hop has to be followed by two bytes");

/*
 * The number of bytes by which a frame grows when its tag changes. to and from are PACKET_TAGGED + VLAN ID, or 0 for no
 * tag.
 */
static __always_inline int eth_growth(__u16 to, __u16 from)
{
	return (to ? VLAN_HLEN : 0) - (from ? VLAN_HLEN : 0);
}

/* Writes the tag. vlan is PACKET_TAGGED + VLAN ID. */
static __always_inline void eth_write_tag(void *data, __u16 vlan)
{
	STORE16(data + 12, bpf_htons(ETH_P_8021Q));
	STORE16(data + 14, bpf_htons(vlan & 0xfff));
}

/*
 * Writes the MAC addresses and the tag that a frame leaves with. eth_write_type writes the type of the payload. vlan is
 * PACKET_TAGGED + VLAN ID, or 0 for no tag. The caller has checked that the frame has room for the header.
 */
static __always_inline void eth_write(void *data, const struct next_hop *hop, __u16 vlan)
{
	copy(data, hop->dmac, 6);
	copy(data + 6, hop->smac, 6);
	if (vlan)
		eth_write_tag(data, vlan);
}

/* Writes the type of the payload into the Ethernet header. ip is where the payload begins. */
static __always_inline void eth_write_type(void *ip, bool v6)
{
	STORE16(ip - 2, v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP));
}

#endif
