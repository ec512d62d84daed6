/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_PORT_H
#define CULVERT_CORE_PORT_H

/* The most interfaces that one data plane can have. The counters are sized by it. */
#define MAX_PORTS 64

/* The fields that a stage adds to struct port: NAME_PORT of its needs.h. */
#define PORT_MEMBER(name, NAME) NAME##_PORT

/* An interface of the data plane. */
struct port {
	__u32 slot; /* 1 + index of its counters; 0: the data plane is not on it */
	__u16 mac[3] __attribute__((aligned(4)));
	__u8 xmit; /* frames may be redirected to it */
	__u8 pad;
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
