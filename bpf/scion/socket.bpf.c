// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/*
 * The filter of the slow path's UDP sockets. A socket gets packets to its address that come in by any interface. These
 * include packets that the program on an interface does not handle: IP fragments, packets with options or tags, and
 * whatever comes in by interfaces without the program.
 */

/* The link of a socket. Key: the socket's cookie. Writer: scionplane. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	/* A process that tries again keeps the sockets of earlier attempts. */
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u32);
} socket_links SEC(".maps");

struct socket_device {
	__u32 link;
	__u32 ifindex;
};

/* Devices of a link. socket_except tells what they mean. Writer: scionplane. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct socket_device);
	__type(value, __u8);
} socket_devices SEC(".maps");

/*
 * 1: datagrams may come in by all devices except those in socket_devices; 0: by those only. Key: link. Writer:
 * scionplane.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} socket_except SEC(".maps");

struct socket_drops {
	__u64 interface; /* came in by the wrong interface */
	__u64 service; /* a service of the AS as source */
	__u64 bfd; /* BFD with a TTL below the minimum */
};

/* Key: link. Writer: the program. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct socket_drops);
} socket_dropped SEC(".maps");

const volatile __be64 socket_local_ia;
const volatile __u8 socket_bfd_min_ttl; /* or hop limit; 0: any */

#define SOCKET_KEEP 0xffffffff
#define SOCKET_DROP 0

/* Offsets in a SCION packet, from the common header, bytes. */
#define SCION_NEXT_HDR 4
#define SCION_PATH_TYPE 8
#define SCION_ADDR_TYPES 9
#define SCION_SRC_IA 20
#define SCION_HEADERS 28

#define SCION_BFD 203

/* Offsets in the IP header, bytes. */
#define IPV4_TTL 8
#define IPV6_HOP_LIMIT 7

/*
 * Whether a packet is of the own AS, with a service as source and a path of type SCION or EPIC. Such a packet
 * terminates the reference's process: validateSrcHost asks the service for its IP address.
 */
static __always_inline bool from_service(struct __sk_buff *skb)
{
	__u8 h[SCION_HEADERS] __attribute__((aligned(8)));
	__u32 first, second;

	if (bpf_skb_load_bytes(skb, sizeof(struct udphdr), h, sizeof(h)))
		return false;
	if (h[SCION_PATH_TYPE] != 1 && h[SCION_PATH_TYPE] != 3)
		return false;
	first = *(__u32 *)(h + SCION_SRC_IA);
	second = *(__u32 *)(h + SCION_SRC_IA + 4);
	return (h[SCION_ADDR_TYPES] & 0xf) == 4 && first == (__u32)socket_local_ia &&
	       second == (__u32)(socket_local_ia >> 32);
}

/*
 * Whether a packet is BFD with a TTL below the minimum. The session cannot check this, because it does not see the TTL.
 */
static __always_inline bool bfd_from_afar(struct __sk_buff *skb)
{
	__u32 at = skb->protocol == bpf_htons(ETH_P_IP) ? IPV4_TTL : IPV6_HOP_LIMIT;
	__u8 next, ttl;

	if (!socket_bfd_min_ttl ||
	    bpf_skb_load_bytes(skb, sizeof(struct udphdr) + SCION_NEXT_HDR, &next, sizeof(next)) ||
	    next != SCION_BFD)
		return false;
	return bpf_skb_load_bytes_relative(skb, at, &ttl, sizeof(ttl), BPF_HDR_START_NET) ||
	       ttl < socket_bfd_min_ttl;
}

SEC("socket")
int socket_guard(struct __sk_buff *skb)
{
	__u64 cookie = bpf_get_socket_cookie(skb);
	struct socket_device device = {};
	struct socket_drops *drops;
	__u32 *link, *except;

	link = bpf_map_lookup_elem(&socket_links, &cookie);
	if (!link)
		return SOCKET_DROP;
	device.link = *link;
	device.ifindex = skb->ifindex;
	except = bpf_map_lookup_elem(&socket_except, &device.link);
	drops = bpf_map_lookup_elem(&socket_dropped, &device.link);
	if (!except || !drops)
		return SOCKET_DROP;
	if (!bpf_map_lookup_elem(&socket_devices, &device) == !*except) {
		drops->interface++;
		return SOCKET_DROP;
	}
	if (from_service(skb)) {
		drops->service++;
		return SOCKET_DROP;
	}
	if (bfd_from_afar(skb)) {
		drops->bfd++;
		return SOCKET_DROP;
	}
	return SOCKET_KEEP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
