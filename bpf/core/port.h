/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_PORT_H
#define CULVERT_CORE_PORT_H

/* The most interfaces that one data plane can have. The counters are sized by it. */
#define MAX_PORTS 64

/* The fields that a stage adds to struct port: NAME_PORT of its needs.h. */
#define PORT_MEMBER(name, NAME) NAME##_PORT

/*
 * What a worker's queue would lose of frames that come in by an interface (core/worker.h). PORT_STAYS: the VLAN tag that
 * the card has taken off. The frames stay on the CPU that receives them. PORT_UNFINISHED: that the checksum of TCP or UDP
 * is left to be finished, which core/unfinished.h does. PORT_TAGS_STAY: where the Ethernet header of a frame with a tag
 * begins. Those frames stay.
 */
#define PORT_STAYS 1
#define PORT_UNFINISHED 2
#define PORT_TAGS_STAY 4

/* An interface of the data plane. */
struct port {
	__u32 slot; /* 1 + index of its counters; 0: the data plane is not on it */
	__u16 mac[3] __attribute__((aligned(4)));
	__u8 xmit; /* frames may be redirected to it */
	__u8 spread; /* PORT_ */
	STAGES(PORT_MEMBER)
};

/* Key: ifindex. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct port);
} ports SEC(".maps");

#endif
