/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_PORT_H
#define CULVERT_CORE_PORT_H

/* The most interfaces that one data plane can have. The counters are sized by it. */
#define MAX_PORTS 64

/* The fields that a stage adds to struct port: NAME_PORT of its needs.h. */
#define PORT_MEMBER(name, NAME) NAME##_PORT

/*
 * Flags of an interface. The first three say what a worker's queue would lose of frames that come in by it (core/worker.h).
 * PORT_STAYS: the VLAN tag that the card has taken off. The frames stay on the CPU that receives them. PORT_UNFINISHED:
 * that the checksum of TCP or UDP is left to be finished, which core/unfinished.h does. PORT_TAGS_STAY: where the Ethernet
 * header of a frame with a tag begins. Those frames stay.
 */
#define PORT_STAYS 1
#define PORT_UNFINISHED 2
#define PORT_TAGS_STAY 4
/* In the entry of a member of a bond: the bond does not take its frames. */
#define PORT_STANDBY 8
/* Frames of several buffers may not be redirected to it. */
#define PORT_LINEAR 16

/*
 * An interface of the data plane, or a member of one that is a bond. The kernel runs a bond's program on the members, by
 * whose indexes packets come in, and routes lead to the bond. So what belongs to an interface is in the entry of the
 * bond. The entry of a member refers to it, and has slot 0.
 */
struct port {
	__u32 slot; /* 1 + index of its counters; 0: the data plane is not on it, or it is a member */
	__u16 mac[3] __attribute__((aligned(4)));
	__u8 xmit; /* frames may be redirected to it */
	__u8 spread; /* PORT_ flags */
	__u32 dev; /* the interface that its packets come in by for the kernel: its own index, or that of the bond */
	STAGES(PORT_MEMBER)
};

/* Key: ifindex. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct port);
} ports SEC(".maps");

/* The interface of an entry whose slot is 0: the bond, or NULL if it is no member. */
static __noinline __attribute__((unused)) struct port *port_bond(const struct port *member)
{
	__u32 ifindex = member->dev;
	struct port *port;

	if (!ifindex)
		return NULL;
	port = bpf_map_lookup_elem(&ports, &ifindex);
	return port && port->slot ? port : NULL;
}

/* The interface that packets with this index come in by, NULL if the data plane is not on it. */
static __always_inline struct port *port_at(__u32 ifindex)
{
	struct port *port = bpf_map_lookup_elem(&ports, &ifindex);

	return !port || port->slot ? port : port_bond(port);
}

/* The index that an interface has for the kernel: of a member it is that of the bond. */
static __always_inline __u32 port_dev(__u32 ifindex)
{
	struct port *port = bpf_map_lookup_elem(&ports, &ifindex);

	return port && port->dev ? port->dev : ifindex;
}

/* Whether a frame lies in one buffer. */
static __always_inline bool one_buffer(const struct xdp_md *ctx)
{
	__u64 linear = (void *)(long)ctx->data_end - (void *)(long)ctx->data;

	return linear >= bpf_xdp_get_buff_len((struct xdp_md *)ctx);
}

#endif
